"""The simulation against the load tests themselves, with their own arrivals and texts."""

from __future__ import annotations

import json

import numpy as np

from report.evidence import Evidence
from report.fleet.batches import BatchModel, Ints, Trace, fit, read_trace
from report.fleet.simulation import simulate
from testbed.errors import UserError
from testbed.records import LoadTestRun
from testbed.records.fleet import SimulationCheck
from testbed.tokenization import TextTokenizer

SEEDS = 5
MIN_RUNS = 2


def token_counts(evidence: Evidence) -> Ints:
    """Return tokens of each text that the load generator sends, by its index: those of the test split.

    Without the run's own test split every text counts as the manifest's mean: the model then rests on texts alone.
    """
    texts = evidence.run / "dataset" / "test.jsonl"
    tokenizer = evidence.run / "bundle" / evidence.manifest.tokenizer_file
    if not texts.is_file() or not tokenizer.is_file():
        return np.full(1, round(float(np.mean(evidence.manifest.lengths))), dtype=np.int64)
    with texts.open(encoding="utf-8") as stream:
        rows = [json.loads(line)["text"] for line in stream]
    encode = TextTokenizer(tokenizer, max_length=evidence.manifest.max_length).encode_batch
    return np.asarray([len(ids) for ids in encode(rows)], dtype=np.int64)


def read_traces(variant: str, profile: str, evidence: Evidence) -> dict[str, Trace]:
    """Return the raw rows of every steady open-loop run of a row without errors, by file name.

    Raises:
        UserError: rows are missing, or the server told no timings.
    """
    counts = token_counts(evidence)
    runs = evidence.steady_runs_of(variant, profile)
    return {
        name: read_trace(evidence.run / "loads" / run.rows_file, counts)
        for name, run in runs.items()
        if run.target_qps and not run.errors
    }


def check_simulation(
    variant: str, profile: str, evidence: Evidence, *, deadline_s: float
) -> tuple[SimulationCheck, ...]:
    """Simulate each open-loop run with its own batch times, and with all the others', and compare p50 and p99.

    Returns:
        One check a run, by load; none where there are fewer than two runs with raw rows.
    """
    try:
        traces = read_traces(variant, profile, evidence)
    except UserError:
        return ()
    if len(traces) < MIN_RUNS:
        return ()
    capacity = evidence.capacity_of(variant, profile)
    best = capacity.max_qps_at_slo if capacity else None
    checks = []
    for name, trace in traces.items():
        others = [other for other_name, other in traces.items() if other_name != name]
        checks.append(_check(name, evidence.loads[name], trace, others, best, deadline_s))
    return tuple(sorted(checks, key=lambda check: check.target_qps))


def _check(
    name: str, run: LoadTestRun, trace: Trace, others: list[Trace], best: float | None, deadline_s: float
) -> SimulationCheck:
    p50, p99 = _quantiles(fit([trace]), trace, deadline_s)
    predicted_p50, predicted_p99 = _quantiles(fit(others), trace, deadline_s)
    ordered = np.sort(trace.latency_s)
    measured_p50, measured_p99 = (float(ordered[int(np.ceil(share * len(ordered))) - 1]) for share in (0.5, 0.99))
    assert run.target_qps is not None
    return SimulationCheck(
        run=name,
        target_qps=run.target_qps,
        share_of_capacity=run.target_qps / best if best else None,
        valid=run.valid,
        measured_p50_s=measured_p50,
        measured_p99_s=measured_p99,
        simulated_p50_s=p50,
        simulated_p99_s=p99,
        predicted_p50_s=predicted_p50,
        predicted_p99_s=predicted_p99,
        p50_error=p50 / measured_p50 - 1,
        p99_error=p99 / measured_p99 - 1,
        predicted_p50_error=predicted_p50 / measured_p50 - 1,
        predicted_p99_error=predicted_p99 / measured_p99 - 1,
    )


def _quantiles(model: BatchModel, trace: Trace, deadline_s: float) -> tuple[float, float]:
    """Return p50 and p99 of the trace's queries under a model, in seconds: the medians over the seeds."""
    outcomes = [simulate(model, trace.sent_s, trace.tokens, deadline_s=deadline_s, seed=seed) for seed in range(SEEDS)]
    p50, p99 = (float(np.median([outcome.quantile_s(share) for outcome in outcomes])) for share in (0.5, 0.99))
    return p50, p99
