"""The cost of a query, taken apart: what distilling, each precision and answering many at once did, one by one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from report import model
from report.evidence import Evidence
from testbed.records import LoadTestRun
from testbed.records.cost import ServingCost, Step

PADDED = frozenset({"fixed", "sorted"})


@dataclass(frozen=True)
class _State:
    name: str
    variant: str
    qps: float
    usd_per_million: float


def ablation(
    rows: tuple[ServingCost, ...], profile: str, evidence: Evidence, *, best: str, baseline: str
) -> tuple[Step, ...]:
    """Return the steps from the baseline, one query at a time, to the best variant at its capacity.

    One query at a time the cost of a query is the mean SingleStream latency at the price of the device; what follows
    are the distilled model, its precision, and serving as many at once as the SLO allows under random arrivals. Where
    the batching policies were swept, what padding costs is a step of its own: the CPU time of a query in padded batches
    over that in packed ones, at the highest load that both carried within the SLO. A step whose figure was not measured
    is left out, and so folded into the next one.
    """
    by_name = {row.variant: row for row in rows if row.profile == profile}
    student_fp32 = f"{best.partition('-')[0]}-fp32"
    names = list(dict.fromkeys([baseline, student_fp32, best]))
    states = []
    for name in names:
        row, run = by_name.get(name), _single(name, profile, evidence)
        if row and row.price and run and run.latency:
            qps = 1 / run.latency.mean_s
            states.append(_State(_word(name, baseline), name, qps, _usd(row, qps)))
    last = by_name.get(best)
    if last and last.valid and last.max_qps_at_slo:
        qps, usd = last.max_qps_at_slo, _usd(last, last.max_qps_at_slo)
        padding = padding_factor(best, profile, evidence)
        if padding is None:
            states.append(_State("batched, within the SLO", best, qps, usd))
        else:
            states.append(_State("batched, with padding", best, qps / padding, usd * padding))
            states.append(_State("packed, without padding", best, qps, usd))
    if len(states) <= 1:
        return ()
    first = Step(
        name=states[0].name,
        from_variant=states[0].variant,
        to_variant=states[0].variant,
        qps=states[0].qps,
        usd_per_million_queries=states[0].usd_per_million,
        factor=1.0,
    )
    return (first, *(_step(before, after) for before, after in itertools.pairwise(states)))


def padding_factor(variant: str, profile: str, evidence: Evidence) -> float | None:
    """Return CPU time of a query in padded over packed batches, at the highest load that both carried within the SLO.

    Of several padding policies the cheapest counts. None where no sweep has both at one load.
    """
    points = [
        point
        for sweep in evidence.sweeps
        if (sweep.variant, sweep.profile) == (variant, profile)
        for point in sweep.points
        if point.valid and point.meets_slo and point.cpu_s_per_query
    ]
    packed = {point.target_qps: point.cpu_s_per_query for point in points if point.policy == "packed"}
    padded = [point for point in points if point.policy in PADDED and point.target_qps in packed]
    highest = max((point.target_qps for point in padded), default=None)
    least = min((point.cpu_s_per_query or 0.0 for point in padded if point.target_qps == highest), default=None)
    return least / (packed[highest] or 1.0) if least and highest else None


def _step(before: _State, after: _State) -> Step:
    return Step(
        name=after.name,
        from_variant=before.variant,
        to_variant=after.variant,
        qps=after.qps,
        usd_per_million_queries=after.usd_per_million,
        factor=before.usd_per_million / after.usd_per_million,
    )


def _word(name: str, baseline: str) -> str:
    if name == baseline:
        return f"{name} alone"
    return "distilled" if name.endswith("-fp32") else name.rpartition("-")[2].upper()


def _usd(row: ServingCost, qps: float) -> float:
    assert row.price is not None
    return model.rent_per_query(row.price.usd_per_hour, qps) * 1e6


def _single(variant: str, profile: str, evidence: Evidence) -> LoadTestRun | None:
    runs = evidence.runs_of(variant, profile).values()
    return next((run for run in runs if run.scenario == "SingleStream" and run.valid), None)
