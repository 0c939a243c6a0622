"""What to deploy: the cheapest row that keeps every promise, and why each other row lost."""

from __future__ import annotations

from dataclasses import dataclass

from report import model
from report.config import ReportConfig
from testbed.records.cost import Decision, Loser, ServingCost

SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True)
class Offer:
    """A row with what it costs over the horizon.

    Attributes:
        row: the variant on its profile.
        usd_per_month: of all replicas.
        usd: one-time cost and serving over the horizon.
        num_replicas: that carry the peak.
    """

    row: ServingCost
    usd_per_month: float
    usd: float
    num_replicas: int

    @property
    def name(self) -> str:
        """The row in words."""
        return f"{self.row.variant} on {self.row.profile}"


def accuracy_floor(rows: tuple[ServingCost, ...], config: ReportConfig) -> float:
    """Return the share of right answers that a variant must reach: the configured share of the baseline's.

    Where the baseline was not served, the best row stands in for it.
    """
    of_baseline = [row.accuracy.value for row in rows if row.variant == config.baseline]
    return config.accuracy_floor * max(of_baseline or [row.accuracy.value for row in rows])


def disqualified(row: ServingCost, floor: float, config: ReportConfig) -> str | None:
    """Return why a row may not be chosen at any cost, or None."""
    if not row.valid:
        return f"INVALID: {'; '.join(row.invalid_reasons)}"
    if row.accuracy.value < floor:
        return f"accuracy {row.accuracy.value:.3f} is below the floor {floor:.3f}"
    price = offer(row, config)
    budget = config.budget_usd_per_month
    if budget is not None and price.usd_per_month > budget:
        return f"{price.usd_per_month:,.2f} usd a month is over the budget of {budget:,.2f}"
    return None


def offer(row: ServingCost, config: ReportConfig, *, traffic_factor: float = 1.0) -> Offer:
    """Return what a VALID row costs over the horizon, at the configured traffic times a factor.

    Without traffic in the experiment file a million queries a day are taken, and only busy time is paid.
    """
    assert row.price is not None
    assert row.max_qps_at_slo is not None
    made = row.one_time.total_usd if row.one_time else 0.0
    if config.traffic is None:
        per_query = model.rent_per_query(row.price.usd_per_hour, row.max_qps_at_slo)
        usd_per_day = per_query * 1e6 * traffic_factor
        num = 1
    else:
        num = model.replicas(config.traffic.peak_qps * traffic_factor, row.max_qps_at_slo)
        usd_per_day = row.price.usd_per_hour * num * 24
    return Offer(
        row=row,
        usd_per_month=usd_per_day / 24 * model.HOURS_PER_MONTH,
        usd=made + usd_per_day * config.horizon_days,
        num_replicas=num,
    )


def best_offer(
    rows: tuple[ServingCost, ...], floor: float, config: ReportConfig, *, traffic_factor: float = 1.0
) -> Offer | None:
    """Return the cheapest qualifying offer over the horizon, or None; at equal cost the more accurate one."""
    fit = [row for row in rows if disqualified(row, floor, config) is None]
    offers = [offer(row, config, traffic_factor=traffic_factor) for row in fit]
    return min(offers, key=lambda o: (o.usd, -o.row.accuracy.value), default=None)


def decide(
    rows: tuple[ServingCost, ...], config: ReportConfig, *, batching: dict[tuple[str, str], float | None]
) -> Decision:
    """Return the decision over all rows; ``batching`` is the mean batch that each row's server measured."""
    floor = accuracy_floor(rows, config)
    best = best_offer(rows, floor, config)
    if best is None:
        losers = tuple(
            Loser(variant=row.variant, profile=row.profile, reason=disqualified(row, floor, config) or "")
            for row in rows
        )
        return _nothing(losers, floor, config)
    return Decision(
        variant=best.row.variant,
        profile=best.row.profile,
        replicas=best.num_replicas if config.traffic else None,
        batching=batching.get((best.row.variant, best.row.profile)),
        usd_per_month=best.usd_per_month,
        usd_over_horizon=best.usd,
        horizon_days=config.horizon_days,
        accuracy_floor=floor,
        reason=_why(best, floor, config),
        losers=tuple(_loser(row, best, floor, config) for row in rows if row is not best.row),
        flips=(),
    )


def _why(best: Offer, floor: float, config: ReportConfig) -> str:
    load = (
        f"{config.traffic.mean_qps:g} queries/s on average, {config.traffic.peak_qps:g} at the peak"
        if config.traffic
        else "a million queries a day"
    )
    return (
        f"{best.name} is the cheapest over {config.horizon_days:g} days at {load}, what it cost to make counted, among "
        f"all that keep the SLO and the accuracy floor of {floor:.3f}"
    )


def _loser(row: ServingCost, best: Offer, floor: float, config: ReportConfig) -> Loser:
    barred = disqualified(row, floor, config)
    if barred:
        return Loser(variant=row.variant, profile=row.profile, reason=barred)
    mine = offer(row, config)
    extra = mine.usd - best.usd
    slower = (row.max_qps_at_slo or 0) < (best.row.max_qps_at_slo or 0)
    cause = (
        f"{row.max_qps_at_slo:.3g} queries/s within the SLO against {best.row.max_qps_at_slo:.3g}"
        if slower
        else ("its price or its making costs more")
    )
    if extra == 0:
        return Loser(
            variant=row.variant,
            profile=row.profile,
            reason="the same cost, a lower accuracy or a later place",
            extra_usd=0,
        )
    return Loser(
        variant=row.variant,
        profile=row.profile,
        reason=f"{extra:,.2f} usd more over {config.horizon_days:g} days: {cause}",
        extra_usd=extra,
    )


def _nothing(losers: tuple[Loser, ...], floor: float, config: ReportConfig) -> Decision:
    return Decision(
        variant=None,
        profile=None,
        replicas=None,
        batching=None,
        usd_per_month=None,
        usd_over_horizon=None,
        horizon_days=config.horizon_days,
        accuracy_floor=floor,
        reason="no row is VALID, accurate enough and within the budget",
        losers=losers,
        flips=(),
    )
