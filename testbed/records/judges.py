"""The record of several judges on one server: does a load test's verdict depend on who made it?"""

from __future__ import annotations

from typing import Literal

from testbed.records.base import Frozen, Interval, Record, Sha256


class JudgeRow(Frozen):
    """One judge's view of a server under one load.

    Attributes:
        judge: ``open loop``, ``closed loop`` or ``LoadGen (unofficial)``.
        factor: offered load over the peak.
        target_qps, achieved_qps: offered, and what came back a second.
        num_queries, num_errors: queries issued, and those that failed.
        p50_s, p99_s: from the scheduled time (closed loop: from sending).
        p99_interval: of p99, from this judge's own queries.
        passed: VALID and within the SLO, by this judge's own rules.
        reasons: why not.
        rows_sha256: of the raw rows; None for LoadGen, which keeps its own log.
    """

    judge: str
    factor: float
    target_qps: float
    achieved_qps: float
    num_queries: int
    num_errors: int
    p50_s: float | None
    p99_s: float | None
    p99_interval: Interval | None
    passed: bool
    reasons: tuple[str, ...] = ()
    rows_sha256: Sha256 | None = None


class JudgeReport(Record):
    """Several judges on the same server under the same loads.

    Attributes:
        variant, profile: what was served.
        slo_s, slo_percentile: the objective.
        peak_qps: the load that the factors multiply.
        rows: one a judge and load.
        omission_factors: load factor to p99 of the open loop over p99 of the closed one: what a closed loop hides.
        disagreements: in words; empty where the judges agree.
    """

    kind: Literal["JudgeReport"] = "JudgeReport"
    variant: str
    profile: str
    slo_s: float
    slo_percentile: float
    peak_qps: float
    rows: tuple[JudgeRow, ...]
    omission_factors: dict[str, float]
    disagreements: tuple[str, ...]
