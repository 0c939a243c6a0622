"""What to deploy, why the others lost, and what would change the choice."""

from __future__ import annotations

from testbed.records.base import Frozen


class Loser(Frozen):
    """A variant on a profile that was not chosen, and why. ``extra_usd`` is over the horizon, where it has a cost."""

    variant: str
    profile: str
    reason: str
    extra_usd: float | None = None


class Flip(Frozen):
    """A change that would make another choice.

    Attributes:
        lever: ``traffic``, ``slo``, ``accuracy_floor`` or ``price``.
        threshold: where the choice changes, with its ``unit``; None where no value tried changes it.
        to: the new choice, or what happens instead.
        sentence: the same in words.
    """

    lever: str
    threshold: float | None
    unit: str
    to: str | None
    sentence: str


class Decision(Frozen):
    """What to deploy.

    Attributes:
        variant, profile: the choice, None where nothing qualifies.
        replicas: at the peak.
        batching: mean texts a batch that the server measured at that load.
        usd_per_month: of the replicas, one-time cost left out.
        usd_over_horizon: one-time cost and serving.
        horizon_days: the time that was looked at.
        accuracy_floor: share of right answers that a variant must reach.
        reason: why this one, in a sentence.
        losers: every other one.
        flips: what would change the choice.
    """

    variant: str | None
    profile: str | None
    replicas: int | None
    batching: float | None
    usd_per_month: float | None
    usd_over_horizon: float | None
    horizon_days: float
    accuracy_floor: float
    reason: str
    losers: tuple[Loser, ...]
    flips: tuple[Flip, ...]
