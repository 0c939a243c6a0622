"""The records of load tests: one run, and the search for the highest load that keeps the SLO."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from testbed.records.base import Frozen, Interval, Record, Sha256, Usage

Scenario = Literal["SingleStream", "MultiStream", "Offline", "Server", "ClosedLoop"]


class Quantile(Frozen):
    """An exact order statistic of the raw latencies, in seconds, with its distribution-free interval (or None)."""

    value_s: float
    interval: Interval | None


class LatencySummary(Frozen):
    """Latencies of one run, in seconds, from the scheduled time; ``quantiles`` by name: p50, p90, p95, p99."""

    num_samples: int
    mean_s: float
    min_s: float
    max_s: float
    quantiles: dict[str, Quantile]


class Check(Frozen):
    """One named validity rule.

    Attributes:
        name: such as ``send_lag`` or ``little_law``.
        passed: whether it held.
        measured: the figure judged, or None where it could not be had (then it did not pass).
        bound: what it had to keep.
        advice: what to do when it failed.
    """

    name: str
    passed: bool
    measured: float | None
    bound: str
    advice: str


class Proof(Frozen):
    """What answered, as the server itself reported it: proof of execution.

    Attributes:
        providers: execution provider to number of graph nodes it ran.
        isa: CPU flags of the serving process.
        threads: intra-op threads.
        precision: of the variant.
        file_sha256: of the ONNX file that was loaded.
    """

    providers: dict[str, int]
    isa: tuple[str, ...]
    threads: int
    precision: str
    file_sha256: Sha256


class ServerUsage(Frozen):
    """The server's process tree: idle before the load, and under it.

    Attributes:
        idle: a window without requests after warm-up.
        loaded: the window of the run.
        cores: cores the server was pinned to, or None.
        mean_batch_texts: texts a batch, from the server's own counters.
        padding_ratio: padded over computed tokens, from the server's own counters.
        counted_requests: requests that the server counted in the window.
    """

    idle: Usage | None
    loaded: Usage
    cores: tuple[int, ...] | None
    mean_batch_texts: float | None
    padding_ratio: float | None
    counted_requests: int | None


class LoadTestRun(Record):
    """One load-test run. Errors are misses, never fast answers.

    Attributes:
        variant, profile: what was served; ``external`` for a URL that is not ours.
        scenario: MLPerf's word.
        purpose: ``probe``, ``confirm``, ``curve``, ``single``, …
        protocol: ``oip``, ``hf`` or ``template``.
        target_qps: offered load; None for closed loops.
        seed: draws arrivals and texts.
        arrivals: the process and its parameters.
        slo_s, slo_percentile: the objective, such as 0.05 and 99.
        num_scheduled, num_sent, num_ok: queries.
        errors: kind (status or exception) to count.
        duration_s: from the first scheduled time to the last.
        achieved_qps: num_sent over the time they were sent in.
        goodput_qps: answers that were right and within the SLO, a second.
        latency: of the queries that were answered; misses count as +infinity in the SLO's verdict.
        lag: sent minus scheduled time.
        meets_slo: the share within the SLO is large enough (errors ≤ 0.1 %), interval left aside.
        valid: every check passed.
        checks: the rules.
        timings: the server's own mean seconds by part (``queue``, ``tokenize``, ``compute``, …) from Server-Timing.
        generator_cpu: CPU seconds of the generator over its wall time and its cores.
        other_cpu: cores' worth of work that neither server nor generator did, on the cores that they were pinned to
            (a hypervisor's steal included); what disturbs a latency without being a rule. None where not pinned.
        server: metered process tree; None for a server that we did not start.
        proof: what answered.
        rows_file, rows_sha256: the raw rows, a Parquet file beside the record.
    """

    kind: Literal["LoadTestRun"] = "LoadTestRun"
    variant: str
    profile: str
    scenario: Scenario
    purpose: str
    protocol: str
    target_qps: float | None
    seed: int
    arrivals: dict[str, JsonValue]
    slo_s: float
    slo_percentile: float
    num_scheduled: int
    num_sent: int
    num_ok: int
    errors: dict[str, int]
    duration_s: float
    achieved_qps: float
    goodput_qps: float
    latency: LatencySummary | None
    lag: LatencySummary | None
    meets_slo: bool
    valid: bool
    checks: tuple[Check, ...]
    timings: dict[str, float] = Field(default_factory=dict)
    generator_cpu: float | None
    other_cpu: float | None = None
    server: ServerUsage | None
    proof: Proof | None
    rows_file: str
    rows_sha256: Sha256


class Probe(Frozen):
    """One short run of a capacity search; ``failed_checks`` names the validity rules it broke."""

    target_qps: float
    valid: bool
    meets_slo: bool
    p99_s: float | None
    error_rate: float
    failed_checks: tuple[str, ...] = ()


class Capacity(Record):
    """The highest offered load that is VALID and keeps the SLO.

    Attributes:
        max_qps_at_slo: of the long confirmation run(s), None where not even the lowest load kept it.
        reason: why None.
        interval: over the repeats, None for one.
        repeats: the confirmed figure of each repeat.
        probes: every short run, in order.
        confirmation: file name of the confirming LoadTestRun(s).
    """

    kind: Literal["Capacity"] = "Capacity"
    variant: str
    profile: str
    slo_s: float
    slo_percentile: float
    max_qps_at_slo: float | None
    reason: str | None
    interval: Interval | None
    repeats: tuple[float, ...]
    probes: tuple[Probe, ...]
    confirmation: tuple[str, ...]
