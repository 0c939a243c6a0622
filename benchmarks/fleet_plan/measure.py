"""How close the fleet plan's simulation comes to real load tests, and how fast the plan is.

python benchmarks/fleet_plan/measure.py RUN --variant student-int8 --traffic experiments/day.csv --out FOLDER

RUN is a finished run: its bundle is served and its test split sent. The load tests go to a run folder of their own
(``--work``), so that ``breakeven report WORK`` shows them. Prints the tables, and writes figures.json and README.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests import capacity
from loadtests.config import LoadTestConfig
from loadtests.suite import Subject, bundle_bench, serving
from report.charts.simulation import is_within_interval, sentence
from report.config import FleetConfig, ReportConfig
from report.evidence import gather
from report.fleet.plan import plan_fleet
from report.fleet.validation import check_simulation
from testbed.bundle import Bundle
from testbed.machine import describe, git_commit
from testbed.progress import say
from testbed.records.fleet import SimulationCheck

SHARES = (0.3, 0.5, 0.7, 0.85, 1.0, 1.2)
PASSES = 2
LOAD_S = 15.0
SCALES = (1e5, 1e6, 1e7, 1e8, 1e9)
SAMPLES = (2_000, 10_000)
PARTS = ("bundle", "dataset", "teacher", "student", "experiment.json")

README = """# The fleet plan: how fast, how close

`benchmarks/fleet_plan/measure.py RUN --variant {variant} --profile {profile} --traffic {traffic} --out FOLDER`, which
makes its own load tests. Machine: {machine}. The traffic's file is an invented day (night low, midday peak), scaled to
each row's queries a day.

## Time

{scales}

The last row takes a fifth of the sample.

## Error

One start of the server; every load {passes} times for {load_s:g} s, the second time backwards, each with arrivals of
its own. Each load test is simulated with its own arrivals, texts and batch times, every disturbance when it came; the
last column takes the batch times of all the other tests, from drawn starts. "Inside": inside the measured p99's own
95 % interval. Latencies are of answered queries, from sending.

{checks}

{said}
"""


def main() -> None:
    """Load-test, simulate, plan; write figures.json and print the tables."""
    options = read_options()
    machine = describe().model_dump(mode="json")
    make_loads(options)
    config = FleetConfig()
    checks = check_simulation(options.variant, options.profile, gather(options.work), deadline_s=config.deadline_s)
    print("\n".join(checks_table(checks)))  # at once: the plans take a while
    rows = [plan_once(options, scale, SAMPLES[-1]) for scale in SCALES]
    rows.append(plan_once(options, SCALES[-1], SAMPLES[0]))
    figures = {
        "machine": machine,
        "commit": git_commit(),
        "variant": options.variant,
        "profile": options.profile,
        "load_s": LOAD_S,
        "checks": [check.model_dump(mode="json") for check in checks],
        "scales": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    print("\n".join(["", *scales_table(rows)]))
    text = README.format(
        variant=options.variant,
        profile=options.profile,
        traffic=options.traffic,
        machine=f"{machine['cpu_model']}, {machine['usable_cores']:g} cores",
        passes=PASSES,
        load_s=LOAD_S,
        scales="\n".join(scales_table(rows)),
        checks="\n".join(checks_table(checks)),
        said=sentence(checks),
    )
    (options.out / "README.md").write_text(text, encoding="utf-8")


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--traffic", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/fleet-plan"))
    parser.add_argument("--variant", required=True)
    parser.add_argument("--profile", default="cpu")
    return parser.parse_args()


def make_loads(options: argparse.Namespace) -> None:
    """Find the peak, then test every load twice, the second time backwards: all against one start of the server."""
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    for part in PARTS:
        if (options.run / part).exists():
            (options.work / part).symlink_to((options.run / part).resolve())
    bundle, subject = Bundle(options.work / "bundle"), Subject(options.variant, options.profile)
    with (
        bundle_bench(LoadTestConfig(), bundle, options.work / "loads", logs=options.work / "logs") as bench,
        serving(bench, bundle, subject) as target,
    ):
        single = bench.run(target, scenario="SingleStream", duration_s=2.0, purpose="single")
        found = capacity.find(bench, target, start_qps=capacity.guess_qps(single))
        capacity.record(bench, options.variant, options.profile, [found])
        peak_qps = found.max_qps or found.probes[-1].target_qps
        say(f"the peak is {peak_qps:.0f} queries/s")
        for seed in range(PASSES):
            for share in SHARES if seed % 2 == 0 else reversed(SHARES):
                qps = share * peak_qps
                bench.run(target, scenario="Server", duration_s=LOAD_S, purpose="load", rate_qps=qps, seed=100 + seed)
                say(f"pass {seed + 1} of {PASSES}: {share:g} times the peak done")


def plan_once(options: argparse.Namespace, queries_per_day: float, queries_a_slot: int) -> dict[str, Any]:
    """Return the plan's figures at one scale; ``plan_wall_s`` leaves the page out."""
    config = ReportConfig(fleet=FleetConfig(queries_a_slot=queries_a_slot))
    begin_s = time.perf_counter()
    plan = plan_fleet(
        config,
        run=options.work,
        traffic=options.traffic,
        variant=options.variant,
        profile=options.profile,
        queries_per_day=queries_per_day,
    )
    static, ruled = plan.fleets
    interval = plan.peak_p99_interval
    return {
        "queries_per_day": queries_per_day,
        "queries_a_slot": queries_a_slot,
        "num_simulated": plan.num_simulated,
        "plan_wall_s": plan.wall_s,
        "with_page_wall_s": time.perf_counter() - begin_s,
        "qps_per_replica": plan.qps_per_replica,
        "static_replicas": static.max_replicas,
        "ruled_mean_replicas": ruled.mean_replicas,
        "static_usd_per_day": static.usd_per_day,
        "ruled_usd_per_day": ruled.usd_per_day,
        "ruled_p99_s": ruled.p99_s,
        "peak_p99_interval_s": None if interval is None else [interval.low, interval.high],
    }


def checks_table(checks: tuple[SimulationCheck, ...]) -> Iterator[str]:
    """Yield the lines of the README's table of errors; ``inside``: the measured p99's interval."""
    yield "| offered, queries/s | of the peak | valid | refused, measured / simulated | p50, ms | simulated | error |"
    yield "|--:|--:|---|--:|--:|--:|--:|"
    for check in checks:
        yield (
            f"| {check.target_qps:.0f} | {check.share_of_capacity or 0:.2f} | {'yes' if check.valid else 'no'} | "
            f"{check.measured_refused_share or 0:.1%} / {check.simulated_refused_share or 0:.1%} | "
            f"{check.measured_p50_s * 1e3:.1f} | {check.simulated_p50_s * 1e3:.1f} | {check.p50_error:+.0%} |"
        )
    yield ""
    yield "| offered, queries/s | p99, ms | 95 % of it | simulated | error | inside | from the other tests: p50 / p99 |"
    yield "|--:|--:|--:|--:|--:|---|--:|"
    for check in checks:
        interval = check.measured_p99_interval
        around = "–" if interval is None else f"{interval.low * 1e3:.1f} – {interval.high * 1e3:.1f}"
        yield (
            f"| {check.target_qps:.0f} | {check.measured_p99_s * 1e3:.1f} | {around} | "
            f"{check.simulated_p99_s * 1e3:.1f} | {check.p99_error:+.0%} | "
            f"{'yes' if is_within_interval(check) else 'no'} | "
            f"{check.predicted_p50_error:+.0%} / {check.predicted_p99_error:+.0%} |"
        )


def scales_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the README's table of times."""
    yield "| queries a day | simulated | plan, s | replicas, static | by the rule (mean) | usd a day, static → rule |"
    yield "|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        yield (
            f"| {row['queries_per_day']:.0e} | {row['num_simulated']:,} | {row['plan_wall_s']:.1f} | "
            f"{row['static_replicas']} | {row['ruled_mean_replicas']:.1f} | "
            f"{row['static_usd_per_day']:.2f} → {row['ruled_usd_per_day']:.2f} |"
        )


if __name__ == "__main__":
    main()
