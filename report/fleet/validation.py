"""The simulation against the load tests themselves, with their own arrivals and texts."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from report.evidence import Evidence
from report.fleet.batches import BatchModel, fit
from report.fleet.simulation import simulate
from report.fleet.trace import REFUSED, Ints, Trace, read_trace
from testbed.errors import UserError
from testbed.latency import quantile
from testbed.records import LoadTestRun
from testbed.records.fleet import SimulationCheck
from testbed.tokenization import TextTokenizer

SEEDS = 9
SHARES = (0.5, 0.99)
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
    """Return the raw rows of every steady open-loop run of a row whose only errors are refusals, by file name.

    Raises:
        UserError: rows are missing, or the server told no timings.
    """
    counts = token_counts(evidence)
    runs = evidence.steady_runs_of(variant, profile)
    return {
        name: read_trace(evidence.run / "loads" / run.rows_file, counts)
        for name, run in runs.items()
        if run.target_qps and all(kind.startswith(REFUSED) for kind in run.errors)
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
    p50, p99 = (quantile(trace.answered_s, share) for share in SHARES)
    own = _simulated(fit([trace]), trace, deadline_s, aligned=True)
    predicted = _simulated(fit(others), trace, deadline_s, aligned=False)
    assert run.target_qps is not None
    return SimulationCheck(
        run=name,
        target_qps=run.target_qps,
        share_of_capacity=run.target_qps / best if best else None,
        valid=run.valid,
        measured_p50_s=p50.value_s,
        measured_p99_s=p99.value_s,
        measured_p50_interval=p50.interval,
        measured_p99_interval=p99.interval,
        simulated_p50_s=own.p50_s,
        simulated_p99_s=own.p99_s,
        predicted_p50_s=predicted.p50_s,
        predicted_p99_s=predicted.p99_s,
        p50_error=own.p50_s / p50.value_s - 1,
        p99_error=own.p99_s / p99.value_s - 1,
        predicted_p50_error=predicted.p50_s / p50.value_s - 1,
        predicted_p99_error=predicted.p99_s / p99.value_s - 1,
        measured_refused_share=trace.refused_share,
        simulated_refused_share=own.refused_share,
    )


@dataclass(frozen=True)
class _Simulated:
    """Medians over the seeds: seconds of the answered queries, and the share that was refused."""

    p50_s: float
    p99_s: float
    refused_share: float


def _simulated(model: BatchModel, trace: Trace, deadline_s: float, *, aligned: bool) -> _Simulated:
    # Nothing is drawn where all comes when it came.
    outcomes = [
        simulate(model, trace.sent_s, trace.tokens, deadline_s=deadline_s, seed=seed, aligned=aligned)
        for seed in range(1 if aligned else SEEDS)
    ]
    answered = [np.sort(outcome.latency_s[np.isfinite(outcome.latency_s)]) for outcome in outcomes]
    p50_s, p99_s = (float(np.median([quantile(each, share).value_s for each in answered])) for share in SHARES)
    return _Simulated(p50_s, p99_s, float(np.median([outcome.refused_share for outcome in outcomes])))
