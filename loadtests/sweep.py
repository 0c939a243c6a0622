"""Every batching policy under the same loads, and the model of a batch's time that the server's counters give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from scipy import stats

from loadtests.counts import ServerCounts
from loadtests.measure import Bench, Measured
from loadtests.server import Target
from testbed.progress import say
from testbed.records import BatchingSweep, BatchTime, Interval, SweepPoint, save

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
            counts = []
            for qps in loads_qps:
                plan = bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=qps)
                measured = bench.measure(target, plan, claim="percentile")
                record = bench.save(target, measured, purpose=f"sweep {policy}")
                counts.append(measured.counts)
                points.append(_point(policy, qps, measured, record.rows_file.replace(".parquet", ".json")))
        if (fitted := fit_batch_time(counts)) is not None:
            batch_times[policy] = fitted
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


def _point(policy: str, qps: float, measured: Measured, run: str) -> SweepPoint:
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
        run=run,
    )


def _around(value: float, half: float) -> Interval:
    return Interval(low=value - half, high=value + half, method="student t of the residuals")
