"""The section `report:` of the experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from testbed.records import Frozen


class Traffic(Frozen):
    """The load that is expected in production, in queries a second.

    Attributes:
        mean_qps: over the day.
        peak_qps: at its busiest; replicas are counted for it.
    """

    mean_qps: float = Field(gt=0)
    peak_qps: float = Field(gt=0)

    @model_validator(mode="after")
    def _peak_is_not_below_the_mean(self) -> Self:
        if self.peak_qps < self.mean_qps:
            msg = f"peak_qps {self.peak_qps:g} is below mean_qps {self.mean_qps:g}"
            raise ValueError(msg)
        return self


class FleetConfig(Frozen):
    """How a fleet is planned and simulated.

    Attributes:
        start_s: seconds that a new replica takes until it is ready, noticing that it is needed counted.
        deadline_s: from a query's arrival; one whose answer is predicted to be later is refused. The server's own on a
            cpu: 70 % of a second, the rest is for the ways in and out.
        routing: how the balancer picks a replica.
        num_slots: slices of the traffic curve.
        queries_a_slot: simulated in each slice, and in each step of the search for a capacity.
    """

    start_s: float = Field(default=60, ge=0)
    deadline_s: float = Field(default=0.7, gt=0)
    routing: Literal["random", "two choices"] = "two choices"
    num_slots: int = Field(default=48, ge=1, le=1000)
    queries_a_slot: int = Field(default=10_000, ge=1000, le=1_000_000)


class ReportConfig(Frozen):
    """How the records are turned into a verdict.

    Attributes:
        prices: a price book of your own, laid over the one that ships.
        devices: what the machine of a profile (``cpu``, ``edge``, ``gpu``) or of ``training`` is: a key of the price
            book. A profile that is not named here is recognised by the price book's ``match``, or unknown.
        reference: the device whose core-hour prices an unknown CPU machine; such costs are marked as projections.
        training_grid, serving_grid: keys of the price book's grids.
        baseline: the variant that payback is counted against.
        accuracy_floor: share of the teacher's accuracy that a variant must keep to be chosen.
        traffic: None leaves replicas and idle cost out, and the decision is made at full load.
        peak_utilisation: share of its measured capacity that a replica is planned to carry at the peak.
        horizon_days: over how long one-time and serving cost are added up.
        budget_usd_per_month: a choice that serves for more is refused.
        trials_share: extra training that nobody metered, spent on finding the settings, as a share of the final runs'
            cost, such as 0.5 (arXiv 2503.05804); 0 counts what was metered alone.
        trials: folders of earlier runs whose trainings were trials on the way to this one: what they used was metered
            and is counted. Those that differ in nothing but the seed give the cost of training its interval.
        fleet: for `breakeven plan`.
    """

    prices: Path | None = None
    devices: dict[str, str] = Field(default_factory=dict)
    reference: str = "aws-c7i-large"
    training_grid: str = "world"
    serving_grid: str = "world"
    baseline: str = "teacher-fp32"
    accuracy_floor: float = Field(default=0.97, gt=0, le=1)
    traffic: Traffic | None = None
    peak_utilisation: float = Field(default=1, gt=0, le=1)
    horizon_days: float = Field(default=365, gt=0)
    budget_usd_per_month: float | None = Field(default=None, gt=0)
    trials_share: float = Field(default=0, ge=0)
    trials: tuple[Path, ...] = ()
    fleet: FleetConfig = FleetConfig()
