"""The cost of a query, taken apart: what distilling, each precision and answering many at once did, one by one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from report import model
from report.evidence import Evidence
from testbed.records import LoadTestRun
from testbed.records.cost import ServingCost, Step


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
    are the distilled model, its precision, and serving as many at once as the SLO allows under random arrivals. A
    step whose figure was not measured is left out, and so folded into the next one.
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
        states.append(_State("batched, within the SLO", best, last.max_qps_at_slo, _usd(last, last.max_qps_at_slo)))
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
