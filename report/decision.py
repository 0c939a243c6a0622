"""What to deploy: the cheapest row that keeps every promise, and why each other row lost."""

from __future__ import annotations

from dataclasses import dataclass

from report import model
from report.config import ReportConfig
from testbed.records.cost import ServingCost
from testbed.records.decision import Decision, Flip, Loser

SAME_COST = 0.01
ONE_MEASUREMENT = 1.2  # capacities nearer than this are not told apart by one search each


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
        peak_qps = config.traffic.peak_qps * traffic_factor
        num = model.replicas(peak_qps, row.max_qps_at_slo, config.peak_utilisation)
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
    """Return the cheapest qualifying offer over the horizon, or None.

    Of those within 1 % of the cheapest, less than the figures can tell apart, it is the most accurate, then the one
    with the most capacity to spare.
    """
    fit = [row for row in rows if disqualified(row, floor, config) is None]
    offers = [offer(row, config, traffic_factor=traffic_factor) for row in fit]
    if not offers:
        return None
    limit_usd = min(each.usd for each in offers) * (1 + SAME_COST)
    return max(
        (each for each in offers if each.usd <= limit_usd),
        key=lambda each: (each.row.accuracy.value, each.row.max_qps_at_slo or 0.0, -each.usd),
    )


def decide(
    rows: tuple[ServingCost, ...],
    config: ReportConfig,
    *,
    batching: dict[tuple[str, str], float | None],
    flips: tuple[Flip, ...] = (),
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
        flips=flips,
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
    if abs(extra) <= SAME_COST * best.usd:
        better = (
            "more accurate"
            if best.row.accuracy.value > row.accuracy.value
            else "no less accurate and has more to spare"
        )
        reason = f"the same cost within 1 %, and {best.name} is {better}"
    elif (row.max_qps_at_slo or 0) < (best.row.max_qps_at_slo or 0):
        speed = f"{row.max_qps_at_slo:.3g} queries/s within the SLO against {best.row.max_qps_at_slo:.3g}"
        reason = f"{extra:,.2f} usd more over {config.horizon_days:g} days: {speed}"
    else:
        reason = f"{extra:,.2f} usd more over {config.horizon_days:g} days: its price an hour or its making is dearer"
    return Loser(variant=row.variant, profile=row.profile, reason=reason + _doubt(row, best.row), extra_usd=extra)


def _doubt(row: ServingCost, best: ServingCost) -> str:
    """Return a caveat where single measurements lie too near each other for the order to be sure."""
    mine, its = row.max_qps_at_slo or 0.0, best.max_qps_at_slo or 0.0
    single = row.qps_interval is None and best.qps_interval is None
    if not single or max(mine, its) >= ONE_MEASUREMENT * min(mine, its):
        return ""
    return "; one measurement each, too near to be told apart (loadtests.repeats gives intervals)"


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
