"""How fast the fleet plan is, and how close its simulation comes to the load tests it is fitted to.

python benchmarks/fleet_plan/measure.py RUN --traffic experiments/day.csv --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from report.config import FleetConfig, ReportConfig
from report.fleet.plan import plan_fleet
from testbed.machine import describe, git_commit

SCALES = (1e5, 1e6, 1e7, 1e8, 1e9)
SAMPLES = (2_000, 10_000)


def main() -> None:
    """Plan at each scale, and once with a smaller sample, and write figures.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--traffic", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variant")
    parser.add_argument("--profile")
    options = parser.parse_args()
    rows = [measure(options, scale, SAMPLES[-1]) for scale in SCALES]
    rows.append(measure(options, SCALES[-1], SAMPLES[0]))
    checks = [check.model_dump() for check in rows[0].pop("checks")]
    for row in rows[1:]:
        row.pop("checks")
    figures = {
        "machine": describe().model_dump(mode="json"),
        "commit": git_commit(),
        "scales": rows,
        "checks": checks,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


def measure(options: argparse.Namespace, queries_per_day: float, queries_a_slot: int) -> dict[str, object]:
    """Return the plan's figures at one scale; ``plan_wall_s`` leaves the page out."""
    config = ReportConfig(fleet=FleetConfig(queries_a_slot=queries_a_slot))
    begin_s = time.perf_counter()
    plan = plan_fleet(
        config,
        run=options.run,
        traffic=options.traffic,
        variant=options.variant,
        profile=options.profile,
        queries_per_day=queries_per_day,
    )
    with_page_s = time.perf_counter() - begin_s
    static, ruled = plan.fleets
    interval = plan.peak_p99_interval
    return {
        "queries_per_day": queries_per_day,
        "queries_a_slot": queries_a_slot,
        "num_simulated": plan.num_simulated,
        "plan_wall_s": plan.wall_s,
        "with_page_wall_s": with_page_s,
        "qps_per_replica": plan.qps_per_replica,
        "static_replicas": static.max_replicas,
        "ruled_mean_replicas": ruled.mean_replicas,
        "static_usd_per_day": static.usd_per_day,
        "ruled_usd_per_day": ruled.usd_per_day,
        "ruled_p99_s": ruled.p99_s,
        "peak_p99_interval_s": None if interval is None else [interval.low, interval.high],
        "checks": plan.checks,
    }


if __name__ == "__main__":
    main()
