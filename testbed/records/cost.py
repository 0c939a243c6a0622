"""The record of the verdict: what training cost, what a query costs, and where the two meet."""

from __future__ import annotations

from typing import Literal

from testbed.records.base import Accuracy, Frozen, Interval, Record
from testbed.records.load import Proof


class StageCost(Frozen):
    """What one stage (``teacher``, ``student``, ``quantize``) used and cost.

    Attributes:
        wall_s: seconds.
        device_hours: hours of the priced device.
        energy_j: joules, or None.
        energy_method: ``counter``, ``rapl``, ``estimate`` or None.
        energy_reason: why there is none, or what the estimate assumes.
        cost_usd: device-hours at the price book's price.
        gco2e: grams, None where the energy is.
        accuracy: on the test split; None for a stage that has none of its own.
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
    """

    variant: str
    profile: str
    against: str
    queries: float | None
    interval: Interval | None = None
    queries_energy: float | None = None
    queries_co2e: float | None = None
    reason: str | None = None


class CostReport(Record):
    """The verdict of one experiment on one machine."""

    kind: Literal["CostReport"] = "CostReport"
    experiment: str
    headline: str
    slo_s: float
    training: dict[str, StageCost]
    serving: tuple[ServingCost, ...]
    break_even: tuple[Crossing, ...]
    payback: tuple[Crossing, ...]
