"""The record of a fleet plan: how many replicas a traffic curve needs, what they cost, and how far to trust it."""

from __future__ import annotations

from typing import Literal

from testbed.records.base import Frozen, Interval, Record


class SimulationCheck(Frozen):
    """One real load test against simulations of it, with the same arrivals and texts.

    ``simulated`` takes the batch times from the test itself, each disturbance when it came, so what is checked is the
    queueing; ``predicted`` takes them from all the other tests of the row, so a machine that was faster or slower then
    shows as well.

    Attributes:
        run: file name of the load test.
        target_qps: its offered load.
        share_of_capacity: offered load over the row's capacity, None without one.
        valid: the load test's own verdict.
        measured_p50_s, measured_p99_s: of the load test's answered queries, from sending: without the generator's lag.
        simulated_p50_s, simulated_p99_s: nothing is drawn.
        predicted_p50_s, predicted_p99_s: medians over the simulation's seeds.
        p50_error, p99_error: simulated over measured, minus one.
        predicted_p50_error, predicted_p99_error: predicted over measured, minus one.
        measured_p50_interval, measured_p99_interval: distribution-free, in seconds; None where too few were answered.
        measured_refused_share, simulated_refused_share: of all queries.
    """

    run: str
    target_qps: float
    share_of_capacity: float | None
    valid: bool
    measured_p50_s: float
    measured_p99_s: float
    simulated_p50_s: float
    simulated_p99_s: float
    predicted_p50_s: float
    predicted_p99_s: float
    p50_error: float
    p99_error: float
    predicted_p50_error: float
    predicted_p99_error: float
    measured_p50_interval: Interval | None = None
    measured_p99_interval: Interval | None = None
    measured_refused_share: float | None = None
    simulated_refused_share: float | None = None


class FleetSlot(Frozen):
    """One slice of the traffic curve under the autoscaling rule.

    Attributes:
        begin_s: from the start of the curve.
        offered_qps: mean over the slice.
        replicas: that the rule gives.
        p50_s, p99_s: simulated; p99 is None where more than 1 % are refused.
        within_slo: share of all queries answered within the SLO.
        refused_share: of all queries.
        utilisation: of the replicas' lanes.
    """

    begin_s: float
    offered_qps: float
    replicas: int
    p50_s: float
    p99_s: float | None
    within_slo: float
    refused_share: float
    utilisation: float


class Fleet(Frozen):
    """A way to run the replicas over the whole curve.

    Attributes:
        name: ``static`` (always enough for the peak) or ``autoscaled``.
        max_replicas, mean_replicas: over the curve.
        usd_per_day: all replicas.
        usd_per_million_queries: the same, a query.
        energy_j_per_query: idle energy included; None where it is not known.
        p99_s: over all queries of the curve; None where more than 1 % are refused.
        within_slo: share of all queries answered within the SLO.
        utilisation: of the replicas' lanes, over the curve.
    """

    name: Literal["static", "autoscaled"]
    max_replicas: int
    mean_replicas: float
    usd_per_day: float
    usd_per_million_queries: float
    energy_j_per_query: float | None
    p99_s: float | None
    within_slo: float
    utilisation: float


class FleetPlan(Record):
    """How many replicas a traffic curve needs; ``parents`` has the hashes of the manifest and of the curve's file.

    Attributes:
        variant, profile: what is served.
        slo_s: p99 objective.
        queries_per_day, mean_qps, peak_qps: of the curve.
        qps_per_replica: number of replicas to what each carries within the SLO, by simulation.
        headroom: by how much the curve grows while a new replica starts.
        start_s: that a new replica takes to be ready.
        rule: the autoscaling rule in words.
        fleets: static and autoscaled.
        slots: under the rule.
        checks: the simulation against real load tests.
        peak_p99_interval: sampling error of the simulated p99 at the peak, in seconds.
        num_simulated: queries.
        wall_s: that planning took.
    """

    kind: Literal["FleetPlan"] = "FleetPlan"
    variant: str
    profile: str
    slo_s: float
    queries_per_day: float
    mean_qps: float
    peak_qps: float
    qps_per_replica: dict[int, float]
    headroom: float
    start_s: float
    rule: str
    fleets: tuple[Fleet, ...]
    slots: tuple[FleetSlot, ...]
    checks: tuple[SimulationCheck, ...]
    peak_p99_interval: Interval | None
    num_simulated: int
    wall_s: float
