"""The records of series of load tests: what overload does to a server, and what its batching policy does."""

from __future__ import annotations

from typing import Literal

from testbed.records.base import Frozen, Interval, Record, Sha256


class OverloadPoint(Frozen):
    """A server under a multiple of the load that it can take.

    Attributes:
        factor: offered load over the peak.
        offered_qps, goodput_qps: what was asked, and what was answered rightly within the SLO.
        served_p99_s: p99 of the answered queries, None where there were none.
        error_rate: share of the queries without a right answer.
        shed: reason (status, and the server's word for it) to count.
        short_within_slo, long_within_slo: share within the SLO of the shortest and the longest quarter of the texts.
        recovery_s: seconds after the load fell to half the peak until the last late answer; None where it never did.
        valid: the generator kept its schedule; the queue may grow, that is what overload is.
        run: file name of the LoadTestRun.
        rows_sha256: of its raw rows.
        broken_rules: validity rules that made it INVALID.
    """

    factor: float
    offered_qps: float
    goodput_qps: float
    served_p99_s: float | None
    error_rate: float
    shed: dict[str, int]
    short_within_slo: float | None
    long_within_slo: float | None
    recovery_s: float | None
    valid: bool
    run: str
    rows_sha256: Sha256 | None = None
    broken_rules: tuple[str, ...] = ()


class OverloadReport(Record):
    """Goodput at multiples of the peak, in order of the factor."""

    kind: Literal["OverloadReport"] = "OverloadReport"
    variant: str
    profile: str
    slo_s: float
    peak_qps: float
    points: tuple[OverloadPoint, ...]


class SweepPoint(Frozen):
    """One batching policy under one load.

    Attributes:
        policy: of the server.
        target_qps, goodput_qps: offered, and answered rightly within the SLO.
        p50_s, p99_s: of the answered queries.
        mean_batch_texts, padding_ratio: by the server's own counters.
        cpu_s_per_query: CPU seconds of the server's process tree over right answers.
        energy_j_per_query: with ``energy_method``, or None.
        meets_slo, valid: as in the run.
        run: file name of the LoadTestRun.
        rows_sha256: of its raw rows.
        predicted_p99_s: by the policy's batch-time model on the run's own arrivals; None where there is no model of how
            the policy forms batches, or the run is INVALID.
        broken_rules: validity rules that made it INVALID.
    """

    policy: str
    target_qps: float
    goodput_qps: float
    p50_s: float | None
    p99_s: float | None
    mean_batch_texts: float | None
    padding_ratio: float | None
    cpu_s_per_query: float | None
    energy_j_per_query: float | None
    energy_method: str | None
    meets_slo: bool
    valid: bool
    run: str
    rows_sha256: Sha256 | None = None
    predicted_p99_s: float | None = None
    broken_rules: tuple[str, ...] = ()


class BatchTime(Frozen):
    """The model of a batch's time, ``fixed_s`` + ``per_token_s`` × tokens, fitted to the runs of one policy.

    Attributes:
        fixed_s: seconds of a batch, whatever it holds.
        per_token_s: seconds a computed token, padding counted.
        fixed_interval, per_token_interval: of the two, from the residuals.
        relative_error: root mean square of the residuals over the mean time.
        num_runs: points that were fitted.
        p99_error: median relative error of the predicted p99 over the VALID runs, None where none was predicted.
    """

    fixed_s: float
    per_token_s: float
    fixed_interval: Interval | None
    per_token_interval: Interval | None
    relative_error: float
    num_runs: int
    p99_error: float | None = None


class BatchingSweep(Record):
    """Every policy under the same loads, and the batch-time model of each."""

    kind: Literal["BatchingSweep"] = "BatchingSweep"
    variant: str
    profile: str
    slo_s: float
    points: tuple[SweepPoint, ...]
    batch_times: dict[str, BatchTime]
