"""Series of load tests and raw rows for the report's tests: invented figures, never a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.records import (
    BatchingSweep,
    BatchTime,
    JudgeReport,
    JudgeRow,
    OverloadPoint,
    OverloadReport,
    SweepPoint,
)
from tests.records_for_report import RATES, SLO_S, manifest, shared, write


def overload(name: str, profile: str) -> OverloadReport:
    """Return an overload test that sheds well: nearly all of the capacity in time at three times the load."""
    peak = max(RATES[name])
    points = tuple(
        OverloadPoint(
            factor=factor, offered_qps=factor * peak, goodput_qps=min(factor, 0.93) * peak, served_p99_s=0.06,
            error_rate=max(0.0, 1 - 1 / factor), shed={"http_503:deadline": int(100 * factor)} if factor > 1 else {},
            short_within_slo=0.9, long_within_slo=0.9, recovery_s=0.2, valid=True, run=f"{name}.{profile}.confirm.json",
        )
        for factor in (0.5, 1.0, 2.0, 3.0)
    )  # fmt: skip
    return OverloadReport(**shared(), variant=name, profile=profile, slo_s=SLO_S, peak_qps=peak, points=points)


def judges(name: str, profile: str, *disagreements: str) -> JudgeReport:
    """Return what two judges say of a server at 0.8 times its peak."""
    rows = tuple(
        JudgeRow(
            judge=judge, factor=0.8, target_qps=100, achieved_qps=100, num_queries=2000, num_errors=0, p50_s=0.01,
            p99_s=p99, p99_interval=None, passed=True,
        )
        for judge, p99 in (("open loop", 0.04), ("closed loop", 0.02))
    )  # fmt: skip
    return JudgeReport(
        **shared(), variant=name, profile=profile, slo_s=SLO_S, slo_percentile=99, peak_qps=125, rows=rows,
        omission_factors={"0.8": 2.0}, disagreements=disagreements,
    )  # fmt: skip


def sweep(name: str, profile: str) -> BatchingSweep:
    """Return two batching policies under two loads."""
    points = tuple(
        SweepPoint(
            policy=policy, target_qps=qps, goodput_qps=qps, p50_s=0.01, p99_s=0.02 * scale * qps / 100,
            mean_batch_texts=2, padding_ratio=1, cpu_s_per_query=0.002, energy_j_per_query=None, energy_method=None,
            meets_slo=scale * qps < 400, valid=True, run=f"{name}.{profile}.confirm.json",
        )
        for policy, scale in (("none", 2), ("packed", 1))
        for qps in (100.0, 300.0)
    )  # fmt: skip
    fitted = BatchTime(
        fixed_s=1e-3, per_token_s=5e-5, fixed_interval=None, per_token_interval=None, relative_error=0.02, num_runs=3
    )
    times = {"packed": fitted}
    return BatchingSweep(**shared(), variant=name, profile=profile, slo_s=SLO_S, points=points, batch_times=times)


def write_series(loads: Path, name: str, profile: str) -> None:
    """Write an overload test, what the judges say, and a sweep of policies."""
    write(overload(name, profile), loads / f"{name}.{profile}.overload.json")
    write(judges(name, profile), loads / f"{name}.{profile}.judges.json")
    write(sweep(name, profile), loads / f"{name}.{profile}.sweep.json")


def write_rows(path: Path, qps: float, *, fixed_s: float, per_token_s: float, num: int = 1500) -> None:
    """Write the raw rows of a first-come-first-served batching server whose batch time is exactly linear in tokens."""
    draw = np.random.default_rng(int(qps * 100))
    arrivals, lengths = np.cumsum(draw.exponential(1 / qps, num)).tolist(), manifest().lengths
    texts = draw.integers(0, len(lengths), num).tolist()
    free_s, rows, head = 0.0, [], 0
    while head < num:
        begin_s = max(free_s, arrivals[head])
        members = [head]
        while (last := members[-1] + 1) < num and arrivals[last] <= begin_s and len(members) < 8:
            members.append(last)
        lane_s = fixed_s + per_token_s * sum(lengths[texts[i]] for i in members)
        free_s, head = begin_s + lane_s, members[-1] + 1
        timing = "queue;dur={:.6f}, tokenize;dur=0, batch;dur=0, compute;dur={:.6f}"
        rows += [
            (
                i,
                texts[i],
                arrivals[i],
                arrivals[i],
                free_s + 4e-4,
                None,
                timing.format((begin_s - arrivals[i]) * 1e3, lane_s * 1e3),
            )
            for i in members
        ]
    names = ["query", "text", "scheduled_s", "sent_s", "done_s", "error", "server_timing"]
    columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True))
    columns["error"] = pa.array(columns["error"], type=pa.string())
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
