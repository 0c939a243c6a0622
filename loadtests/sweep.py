"""Every batching policy under the same loads, and the model of a batch's time that the server's counters give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loadtests.counts import ServerCounts
from loadtests.measure import Bench, Measured
from loadtests.predict import error_of, packed_sojourns_s, tokens_by_length
from loadtests.rows import read_rows
from loadtests.server import Target
from loadtests.texts import read_texts
from testbed.progress import say
from testbed.records import BatchingSweep, BatchTime, Interval, LoadTestRun, SweepPoint, save

PREDICTED = "packed"  # the one policy whose batches need no more than the queue to be told
LEAST_RUNS = 3  # for two coefficients and an error
LEAST_SPREAD = 0.2  # of the batch sizes over their mean: from batches of one size no slope can be told


def sweep_policies(
    bench: Bench,
    serve: Callable[[str], AbstractContextManager[Target]],
    *,
    policies: Sequence[str],
    loads_qps: Sequence[float],
    duration_s: float,
) -> BatchingSweep:
    """Offer each load to each policy, and save and return the curves.

    Args:
        bench: a bench with a started generator.
        serve: starts a server with the policy of that name.
        policies: names of the server's policies.
        loads_qps: ascending.
        duration_s: of each run.
    """
    points: list[SweepPoint] = []
    batch_times: dict[str, BatchTime] = {}
    for policy in policies:
        with serve(policy) as target:
            runs = [_run(bench, target, policy, qps, duration_s) for qps in loads_qps]
        found, time = with_model(bench, target, policy, runs)
        points += found
        if time is not None:
            batch_times[policy] = time
        say(f"batching sweep: {policy} done")
    report = BatchingSweep(
        **bench.provenance(),
        variant=target.variant,
        profile=target.profile,
        slo_s=bench.config.slo_s,
        points=tuple(points),
        batch_times=batch_times,
    )
    save(report, bench.folder / f"{target.variant}.{target.profile}.sweep.json")
    return report


def _run(bench: Bench, target: Target, policy: str, qps: float, duration_s: float) -> tuple[Measured, SweepPoint]:
    plan = bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=qps)
    measured = bench.measure(target, plan, claim="percentile")
    record = bench.save(target, measured, purpose=f"sweep {policy}")
    return measured, _point(policy, qps, measured, record)


def with_model(
    bench: Bench, target: Target, policy: str, runs: Sequence[tuple[Measured, SweepPoint]]
) -> tuple[list[SweepPoint], BatchTime | None]:
    """Return the points of a policy with what its batch-time model predicts, and the model with its error."""
    points = [point for _, point in runs]
    time = fit_batch_time([measured.counts for measured, _ in runs])
    if time is None or policy != PREDICTED:
        return points, time
    lengths = np.asarray([len(text) for text in read_texts(bench.texts_file)])
    shares_core = target.cores is not None and len(target.cores) == 1
    points = [
        point.model_copy(update={"predicted_p99_s": _predicted_p99_s(measured, time, lengths, shares_core=shares_core)})
        if point.valid
        else point
        for measured, point in runs
    ]
    pairs = [(point.predicted_p99_s, point.p99_s) for point in points if point.predicted_p99_s and point.p99_s]
    return points, time.model_copy(update={"p99_error": error_of([p for p, _ in pairs], [m for _, m in pairs])})


def _predicted_p99_s(
    measured: Measured, time: BatchTime, lengths: NDArray[np.int64], *, shares_core: bool
) -> float | None:
    counts, server, answers = measured.counts, measured.server, measured.figures.num_ok
    if not (counts.computed_tokens and counts.compute_s and server and answers):
        return None
    # What a query costs outside its batch delays the others only where it takes the batches' own core.
    outside_s = max(0.0, server.loaded.cpu_s - counts.compute_s) / answers if shares_core else 0.0
    rows = read_rows(measured.outcome.rows_file)
    tokens = tokens_by_length(lengths[rows.text], counts.computed_tokens / answers)
    return float(np.quantile(packed_sojourns_s(rows.scheduled_s, tokens, time, per_text_s=outside_s), 0.99))


def fit_batch_time(counts: Sequence[ServerCounts]) -> BatchTime | None:
    """Fit a + b·tokens to the mean batches of several runs: a linear model holds between means too.

    Returns:
        None where fewer than three runs have counters, or all had batches of much the same size.
    """
    runs = [each for each in counts if each.batches and each.compute_s is not None and each.computed_tokens is not None]
    tokens = np.asarray([(each.computed_tokens or 0.0) / (each.batches or 1.0) for each in runs])
    seconds = np.asarray([(each.compute_s or 0.0) / (each.batches or 1.0) for each in runs])
    if len(runs) < LEAST_RUNS or np.ptp(tokens) < LEAST_SPREAD * tokens.mean():
        return None
    line = stats.linregress(tokens, seconds)
    width = float(stats.t.ppf(0.975, len(runs) - 2))
    residuals = seconds - (line.intercept + line.slope * tokens)
    return BatchTime(
        fixed_s=float(line.intercept),
        per_token_s=float(line.slope),
        fixed_interval=_around(float(line.intercept), width * float(line.intercept_stderr)),
        per_token_interval=_around(float(line.slope), width * float(line.stderr)),
        relative_error=float(np.sqrt(np.mean(residuals**2)) / seconds.mean()),
        num_runs=len(runs),
    )


def _point(policy: str, qps: float, measured: Measured, record: LoadTestRun) -> SweepPoint:
    figures, server = measured.figures, measured.server
    energy = None if server is None else server.loaded.energy
    quantiles = None if figures.latency is None else figures.latency.quantiles
    answers = max(1, figures.num_ok)
    return SweepPoint(
        policy=policy,
        target_qps=qps,
        goodput_qps=figures.goodput_qps,
        p50_s=None if quantiles is None else quantiles["p50"].value_s,
        p99_s=None if quantiles is None else quantiles["p99"].value_s,
        mean_batch_texts=measured.counts.mean_batch_texts,
        padding_ratio=measured.counts.padding_ratio,
        cpu_s_per_query=None if server is None else server.loaded.cpu_s / answers,
        energy_j_per_query=None if energy is None or energy.energy_j is None else energy.energy_j / answers,
        energy_method=None if energy is None else energy.method,
        meets_slo=figures.meets_slo,
        valid=measured.valid,
        broken_rules=measured.failed,
        run=record.rows_file.replace(".parquet", ".json"),
        rows_sha256=record.rows_sha256,
    )


def _around(value: float, half: float) -> Interval:
    return Interval(low=value - half, high=value + half, method="student t of the residuals")
