"""The fleet plan: how many replicas a traffic curve needs, by which rule, and what they cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from report import model
from report.build import assess, build_report
from report.config import FleetConfig, ReportConfig
from report.evidence import Evidence, gather
from report.fleet.batches import fit
from report.fleet.planner import SHARE, Planner
from report.fleet.simulation import Outcome
from report.fleet.trace import Trace
from report.fleet.traffic import SECONDS_PER_DAY, Curve, read_curve
from report.fleet.validation import check_simulation, read_traces
from testbed.errors import UserError
from testbed.latency import quantile
from testbed.machine import provenance
from testbed.records import Interval, file_sha256, save
from testbed.records.cost import CostReport, ServingCost
from testbed.records.fleet import Fleet, FleetPlan, FleetSlot

HOURS_PER_DAY = 24.0
POINTS_A_SLOT = 33


@dataclass(frozen=True)
class Slot:
    """A slice of the curve: its begin, mean load, and the replicas that serve it."""

    begin_s: float
    qps: float
    num_replicas: int


def plan_fleet(
    config: ReportConfig,
    *,
    run: Path,
    traffic: Path,
    variant: str | None = None,
    profile: str | None = None,
    queries_per_day: float | None = None,
) -> FleetPlan:
    """Plan the replicas of one row for a traffic curve, write ``run/report/plan.json``, and show it on the page.

    Args:
        config: the experiment's section; ``fleet`` says how long a replica takes to start.
        run: a run's folder, with the raw rows of its load tests.
        traffic: CSV file with ``hour`` (or ``minute``, ``time_s``) and ``qps``.
        variant: of the row; the report's choice where not given.
        profile: of the row, likewise.
        queries_per_day: scales the curve to so many queries a day.

    Raises:
        UserError: a curve that cannot be read, a row without a capacity, load tests without raw rows.
    """
    begin_s = time.monotonic()
    evidence = gather(run)
    report = assess(config, evidence)
    row = _row(report, variant, profile)
    curve = read_curve(traffic)
    if queries_per_day is not None:
        curve = curve.scaled(queries_per_day)
    traces = read_traces(row.variant, row.profile, evidence)
    planner = Planner(fit(within_slo(traces, evidence)), slo_s=report.slo_s, config=config.fleet)
    parents = {"manifest": file_sha256(run / "bundle" / "manifest.json"), "traffic": file_sha256(traffic)}
    made = provenance(config.model_dump(mode="json"), parents)
    made["machine"] = evidence.machine_of(row.profile)
    plan = FleetPlan(
        **made,
        **_figures(curve, planner, row),
        variant=row.variant,
        profile=row.profile,
        slo_s=report.slo_s,
        checks=check_simulation(row.variant, row.profile, evidence, deadline_s=config.fleet.deadline_s),
        num_simulated=planner.num_simulated,
        wall_s=time.monotonic() - begin_s,
    )
    save(plan, run / "report" / "plan.json")
    build_report(config, run=run)
    return plan


def within_slo(traces: dict[str, Trace], evidence: Evidence) -> list[Trace]:
    """Return the traces of the runs that kept the SLO, or all where none did: a fleet is planned for what keeps it.

    In overload the event loop itself is late, and what it was late by would be replayed at every load.
    """
    kept = [trace for name, trace in traces.items() if evidence.loads[name].meets_slo]
    return kept or list(traces.values())


class _Figures(TypedDict):
    queries_per_day: float
    mean_qps: float
    peak_qps: float
    qps_per_replica: dict[int, float]
    headroom: float
    start_s: float
    rule: str
    fleets: tuple[Fleet, ...]
    slots: tuple[FleetSlot, ...]
    peak_p99_interval: Interval | None


def _figures(curve: Curve, planner: Planner, row: ServingCost) -> _Figures:
    """Simulate the curve, always enough for the peak and by the rule, and return what the record holds of it."""
    slots = _slots(curve, planner)
    most = planner.needed(float(curve.qps.max()))
    always = [Slot(slot.begin_s, slot.qps, most) for slot in slots]
    static, ruled = (
        [planner.run(slot.qps, slot.num_replicas, seed=index) for index, slot in enumerate(each)]
        for each in (always, slots)
    )
    return _Figures(
        queries_per_day=curve.mean_qps * SECONDS_PER_DAY,
        mean_qps=curve.mean_qps,
        peak_qps=float(curve.qps.max()),
        qps_per_replica=planner.capacities,
        headroom=headroom(curve, planner.config.start_s),
        start_s=planner.config.start_s,
        rule=_rule(curve, planner),
        fleets=(
            _fleet("static", always, static, row, planner.slo_s),
            _fleet("autoscaled", slots, ruled, row, planner.slo_s),
        ),
        slots=tuple(_slot(slot, outcome, planner.slo_s) for slot, outcome in zip(slots, ruled, strict=True)),
        peak_p99_interval=_sampling_error(slots, ruled),
    )


def headroom(curve: Curve, start_s: float) -> float:
    """Return by how much, at most, the curve grows while a replica starts; 1 where it never does."""
    moments = np.linspace(0, curve.span_s, 2000)
    now, then = curve.at(moments), curve.at(moments - start_s)
    grown = now[then > 0] / then[then > 0]
    return float(max(1.0, grown.max(initial=1.0)))


def _slots(curve: Curve, planner: Planner) -> list[Slot]:
    """Return the curve in slices, each with the replicas that the rule gives at its highest load."""
    config: FleetConfig = planner.config
    growth = headroom(curve, config.start_s)
    slots = []
    for begin_s, end_s in pairwise(np.linspace(0, curve.span_s, config.num_slots + 1)):
        moments = np.linspace(begin_s, end_s, POINTS_A_SLOT)
        seen = float(curve.at(moments - config.start_s).max())
        slots.append(Slot(float(begin_s), float(curve.at(moments).mean()), planner.needed(seen * growth)))
    return slots


def _rule(curve: Curve, planner: Planner) -> str:
    growth, start_s = headroom(curve, planner.config.start_s), planner.config.start_s
    most = planner.needed(float(curve.qps.max()) * growth)
    each = planner.per_replica(most)
    return (
        f"keep the smallest n with n × c(n) ≥ {growth:.3g} × the load now; c, what each of n replicas carries, is "
        f"{planner.capacities[1]:.4g} queries/s for a single one and {each:.4g} for {most}; {growth:.3g} is how much "
        f"this curve grows at most while a replica starts ({start_s:g} s)"
    )


def _slot(slot: Slot, outcome: Outcome, slo_s: float) -> FleetSlot:
    p99_s = outcome.quantile_s(SHARE)
    return FleetSlot(
        begin_s=slot.begin_s,
        offered_qps=slot.qps,
        replicas=slot.num_replicas,
        p50_s=outcome.quantile_s(0.5),
        p99_s=p99_s if np.isfinite(p99_s) else None,
        within_slo=outcome.within(slo_s),
        refused_share=outcome.refused_share,
        utilisation=outcome.utilisation,
    )


def _fleet(
    name: Literal["static", "autoscaled"], slots: list[Slot], outcomes: list[Outcome], row: ServingCost, slo_s: float
) -> Fleet:
    assert row.price is not None
    loads = np.asarray([slot.qps for slot in slots])
    replicas = np.asarray([slot.num_replicas for slot in slots])
    mean_qps, mean_replicas = float(loads.mean()), float(replicas.mean())
    usd_per_day = row.price.usd_per_hour * HOURS_PER_DAY * mean_replicas
    within = np.asarray([outcome.within(slo_s) for outcome in outcomes])
    busy = np.asarray([outcome.utilisation for outcome in outcomes])
    return Fleet(
        name=name,
        max_replicas=int(replicas.max()),
        mean_replicas=mean_replicas,
        usd_per_day=usd_per_day,
        usd_per_million_queries=usd_per_day / (mean_qps * SECONDS_PER_DAY) * 1e6,
        energy_j_per_query=_energy_j(row, mean_replicas, mean_qps),
        p99_s=_p99_s(loads, outcomes),
        within_slo=float(np.average(within, weights=loads)),
        utilisation=float(np.average(busy, weights=replicas)),
    )


def _energy_j(row: ServingCost, mean_replicas: float, mean_qps: float) -> float | None:
    if row.energy_j_per_query is None or row.idle_watts is None or row.max_qps_at_slo is None:
        return None
    loaded_w = row.energy_j_per_query * row.max_qps_at_slo
    return model.idle_aware_j_per_query(row.idle_watts, loaded_w, row.max_qps_at_slo, mean_replicas, mean_qps)


def _p99_s(loads: np.ndarray, outcomes: list[Outcome]) -> float | None:
    """Return p99 over the whole curve: each simulated query stands for as many as came in its slice."""
    latency = np.concatenate([outcome.latency_s for outcome in outcomes])
    weight = np.concatenate([np.full(len(o.latency_s), load) for load, o in zip(loads, outcomes, strict=True)])
    order = np.argsort(latency)
    mass = np.cumsum(weight[order]) / weight.sum()
    value = float(latency[order][min(int(np.searchsorted(mass, SHARE)), len(latency) - 1)])
    return value if np.isfinite(value) else None


def _sampling_error(slots: list[Slot], outcomes: list[Outcome]) -> Interval | None:
    """Return the interval of the simulated p99 in the busiest slice, None where it is not finite."""
    busiest = max(range(len(slots)), key=lambda index: slots[index].qps)
    interval = quantile(np.sort(outcomes[busiest].latency_s), SHARE).interval
    return interval if interval and np.isfinite(interval.high) else None


def _row(report: CostReport, variant: str | None, profile: str | None) -> ServingCost:
    decision = report.decision
    chosen = (decision.variant, decision.profile) if decision else (None, None)
    wanted = (variant or chosen[0], profile or chosen[1])
    for row in report.serving:
        if (row.variant, row.profile) == wanted:
            return row
    rows = ", ".join(f"{row.variant} on {row.profile}" for row in report.serving)
    msg = f"no row {wanted[0]} on {wanted[1]} in this run; help: name one of {rows}"
    raise UserError(msg)
