"""The record of the verdict: what training cost, what a query costs, where the two meet, what to deploy and why."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from testbed.records.base import Accuracy, Frozen, Interval, Record
from testbed.records.decision import Decision
from testbed.records.fleet import SimulationCheck
from testbed.records.load import Proof


class Price(Frozen):
    """The price that one stage or profile was charged at.

    Attributes:
        device: key in the price book.
        name: the device in words.
        basis: ``matched`` (the measured machine was recognised), ``named`` (the user said what it is) or
            ``projection`` (the machine is unknown: measured speed, another device's price).
        usd_per_hour: of the share that was used.
        share: of the device's cores; 1 for a GPU's machine.
        watts_idle, watts_busy: of that share, from the price book.
        source, date: of the price.
        note: what was assumed, in a sentence.
    """

    device: str
    name: str
    basis: Literal["matched", "named", "projection"]
    usd_per_hour: float
    share: float
    watts_idle: float | None
    watts_busy: float | None
    source: str
    date: str
    note: str


class StageCost(Frozen):
    """What one stage (``teacher``, ``student``, ``quantize``, ``trials``, ``trials assumed``) used and cost.

    Attributes:
        wall_s: seconds.
        device_hours: hours of the priced share of the device.
        energy_j: joules, or None.
        energy_method: ``counter``, ``rapl``, ``estimate`` or None.
        energy_reason: why there is none, or what the estimate assumes.
        cost_usd: device-hours at the price book's price.
        gco2e: grams, None where the energy is.
        accuracy: on the test split; None for a stage that has none of its own.
        price: what was charged.
        model_flops: floating-point operations of the training phase; None for a stage that trains nothing.
        flops_6nd: Sardana's accounting of the same, 6 × parameters × tokens.
        cost_interval: of ``cost_usd``, over trainings that differ in their seed alone.
        cost_interval_reason: why there is none.
    """

    stage: str
    wall_s: float
    device_hours: float
    energy_j: float | None
    energy_method: str | None
    energy_reason: str | None
    cost_usd: float
    gco2e: float | None
    accuracy: Accuracy | None
    price: Price | None = None
    model_flops: float | None = None
    flops_6nd: float | None = None
    cost_interval: Interval | None = None
    cost_interval_reason: str | None = None


class OneTimeCost(Frozen):
    """What had to be spent before a variant could serve: the stages it needs, and nothing else.

    Attributes:
        parts_usd: stage to usd (``teacher``, ``student``, ``export …``, ``trials``, ``trials assumed``).
        total_usd: their sum.
        energy_j: the sum, None where any part has none or the parts were obtained by different methods.
        energy_method: how all of them were obtained.
        gco2e: grams.
    """

    parts_usd: dict[str, float]
    total_usd: float
    energy_j: float | None
    energy_method: str | None
    gco2e: float | None


class AtTraffic(Frozen):
    """A variant at the traffic of the experiment file: whole replicas, idle time paid for.

    Attributes:
        mean_qps, peak_qps: queries a second over the day, and at its busiest.
        replicas: enough for the peak within the SLO.
        utilisation: mean_qps / (replicas × max_qps_at_slo).
        usd_per_month: all replicas, always on, 730 h.
        usd_per_million_queries: the same, a query.
        energy_j_per_query: idle energy included; None where it is not known.
        idle_energy_share: part of that energy that is spent whether or not queries come.
    """

    mean_qps: float
    peak_qps: float
    replicas: int
    utilisation: float
    usd_per_month: float
    usd_per_million_queries: float
    energy_j_per_query: float | None
    idle_energy_share: float | None


class ServingCost(Frozen):
    """One variant on one profile: what it can do within the SLO, and what a query costs there.

    Attributes:
        valid: the confirming run was VALID; an INVALID one has no cost.
        invalid_reasons: names of the checks that failed.
        max_qps_at_slo: highest offered load that kept the SLO.
        latency_p50_s, latency_p99_s: of the confirming run.
        single_stream_p50_s, single_stream_p90_s: one query at a time.
        cost_usd_per_million_queries: at ``max_qps_at_slo`` on one device.
        energy_j_per_query: joules with ``energy_method``.
        accuracy: on the test split.
        size_bytes: of the variant's files.
        peak_rss_bytes: of the server's process tree under load.
        proof: provider, threads, ISA, file hash; as the server reported them.
        qps_interval: of ``max_qps_at_slo``, over the repeats.
        latency_p99_interval: of ``latency_p99_s``, in seconds.
        cost_interval: of ``cost_usd_per_million_queries``.
        saturation_qps: highest goodput of any VALID run, the SLO left aside.
        energy_reason: why there is no energy, or what the estimate assumes.
        idle_watts: of the ready server without requests.
        gco2e_per_million_queries: grams.
        price: what was charged.
        one_time: what the variant needed before it could serve.
        at_traffic: None where no traffic was given.
        flops_2nd_per_query: Sardana's accounting, 2 × parameters × mean tokens.
        runs: the records that the row was read from, relative to the run's folder.
    """

    variant: str
    profile: str
    valid: bool
    invalid_reasons: tuple[str, ...]
    max_qps_at_slo: float | None
    latency_p50_s: float | None
    latency_p99_s: float | None
    single_stream_p50_s: float | None
    single_stream_p90_s: float | None
    cost_usd_per_million_queries: float | None
    energy_j_per_query: float | None
    energy_method: str | None
    accuracy: Accuracy
    size_bytes: int
    peak_rss_bytes: int | None
    proof: Proof | None
    qps_interval: Interval | None = None
    latency_p99_interval: Interval | None = None
    cost_interval: Interval | None = None
    saturation_qps: float | None = None
    energy_reason: str | None = None
    idle_watts: float | None = None
    gco2e_per_million_queries: float | None = None
    price: Price | None = None
    one_time: OneTimeCost | None = None
    at_traffic: AtTraffic | None = None
    flops_2nd_per_query: float | None = None
    runs: tuple[str, ...] = ()


class Crossing(Frozen):
    """A number of queries at which one cost overtakes another, or None with its reason.

    Attributes:
        variant, profile: what is served.
        against: ``training`` (break-even) or the variant it pays back against (payback).
        queries: the crossing in usd.
        interval: of it, over the repeats.
        queries_energy: the crossing in kWh.
        queries_co2e: the crossing in gCO2e.
        reason: why ``queries`` is None.
        energy_reason: why ``queries_energy`` is None.
        interval_reason: why ``interval`` is None.
    """

    variant: str
    profile: str
    against: str
    queries: float | None
    interval: Interval | None = None
    queries_energy: float | None = None
    queries_co2e: float | None = None
    reason: str | None = None
    energy_reason: str | None = None
    interval_reason: str | None = None


class Finding(Frozen):
    """One line of the self-audit: ``ok``, ``note`` or ``fault``, what was looked at, and what was found."""

    status: Literal["ok", "note", "fault"]
    subject: str
    text: str


class Step(Frozen):
    """One step of the ablation: what the change did to the cost of a query, apart from the steps before it.

    Attributes:
        name: the change.
        from_variant, to_variant: the rows that are compared.
        qps: after the step.
        usd_per_million_queries: after the step.
        factor: cost before over cost after.
    """

    name: str
    from_variant: str
    to_variant: str
    qps: float
    usd_per_million_queries: float
    factor: float


class Alternative(Frozen):
    """Another device of the price book.

    Attributes:
        device, name, kind: of the price book.
        usd_per_hour: of the whole device, by ``source`` at ``date``.
        needed_qps: queries a second within the SLO that it must answer to serve at the chosen row's cost; no claim that
            it does.
    """

    device: str
    name: str
    kind: str
    usd_per_hour: float
    source: str
    date: str
    needed_qps: float


class RoofPoint(Frozen):
    """A training stage or a variant under the machine's ceilings.

    Attributes:
        name: ``training the student``, or the variant.
        where: ``training``, ``one text`` or ``8 packed``.
        flops_per_byte: arithmetic intensity, weights and activations counted.
        flops_per_s: achieved.
        bound: what limits it: ``compute``, ``memory`` or ``data``; None where the ceilings are not known.
        reason: the figures that led to it.
    """

    name: str
    where: str
    flops_per_byte: float
    flops_per_s: float
    bound: Literal["compute", "memory", "data"] | None
    reason: str


class CostReport(Record):
    """The verdict of one experiment on one machine.

    Attributes:
        experiment: its name.
        headline: the verdict in one sentence.
        slo_s, slo_percentile: the objective that all loads were held to.
        training: stage to cost.
        serving: every variant on every profile.
        break_even: serving overtakes the variant's one-time cost.
        payback: distilling and quantizing against serving the baseline.
        precision_payback: quantizing alone, against the same model in FP32.
        payback_between: every variant against every other one on its profile.
        assumptions: what is taken for granted, in sentences.
        decision: None where the loads gave nothing to choose from.
        ablation: profile to its steps.
        audit: the report's own check of what it rests on.
        memory_bytes_per_s: of one thread, measured when the report was made; None where that was another machine.
        gemm_flops_per_s: FP32 matrix product of one thread, likewise.
        roofline: training and each variant under these ceilings.
        alternatives: how fast other devices would have to be.
        simulation: queueing by the measured batch times against the real load tests of the chosen row.
    """

    kind: Literal["CostReport"] = "CostReport"
    experiment: str
    headline: str
    slo_s: float
    slo_percentile: float = 99.0
    training: dict[str, StageCost]
    serving: tuple[ServingCost, ...]
    break_even: tuple[Crossing, ...]
    payback: tuple[Crossing, ...]
    precision_payback: tuple[Crossing, ...] = ()
    payback_between: tuple[Crossing, ...] = ()
    assumptions: tuple[str, ...] = ()
    decision: Decision | None = None
    ablation: dict[str, tuple[Step, ...]] = Field(default_factory=dict)
    audit: tuple[Finding, ...] = ()
    simulation: tuple[SimulationCheck, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    memory_bytes_per_s: float | None = None
    gemm_flops_per_s: float | None = None
    roofline: tuple[RoofPoint, ...] = ()
