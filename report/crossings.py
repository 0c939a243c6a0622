"""Break-even and payback of every row, in usd, kWh and gCO2e, with intervals over the repeated capacities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from report import model
from report.evidence import Evidence
from testbed.records import Interval
from testbed.records.cost import Crossing, OneTimeCost, ServingCost

DRAWS = 4000
MIN_REPEATS = 2
MAX_UNBOUNDED_SHARE = 0.025  # draws without a crossing that a two-sided 95 % interval can leave out


def break_evens(rows: tuple[ServingCost, ...], evidence: Evidence) -> tuple[Crossing, ...]:
    """Return, for each row, after how many queries serving has cost what its making did."""
    return tuple(_break_even(row, evidence) for row in rows)


def paybacks(rows: tuple[ServingCost, ...], baseline: str, evidence: Evidence) -> tuple[Crossing, ...]:
    """Return, for each row but the baseline's, after how many queries it has earned back what it cost more to make.

    A row is held against the baseline on its own profile.
    """
    by_name = {(row.variant, row.profile): row for row in rows}
    return tuple(
        _payback(row, by_name.get((baseline, row.profile)), baseline, evidence)
        for row in rows
        if row.variant != baseline
    )


def precision_paybacks(rows: tuple[ServingCost, ...], evidence: Evidence) -> tuple[Crossing, ...]:
    """Return the same for each row that is not FP32, against its own model's FP32 variant: did the precision pay?"""
    by_name = {(row.variant, row.profile): row for row in rows}
    siblings = {row.variant: f"{row.variant.rpartition('-')[0]}-fp32" for row in rows}
    return tuple(
        _payback(row, by_name.get((siblings[row.variant], row.profile)), siblings[row.variant], evidence)
        for row in rows
        if row.variant != siblings[row.variant]
    )


def paybacks_between(rows: tuple[ServingCost, ...], evidence: Evidence) -> tuple[Crossing, ...]:
    """Return the same for each row against every other variant on its profile."""
    return tuple(
        _payback(row, other, other.variant, evidence)
        for row in rows
        for other in rows
        if other.profile == row.profile and other.variant != row.variant
    )


def usd_per_query(row: ServingCost) -> float | None:
    """Return the row's cost of a query at the SLO, None where it has none."""
    return None if row.cost_usd_per_million_queries is None else row.cost_usd_per_million_queries / 1e6


def _break_even(row: ServingCost, evidence: Evidence) -> Crossing:
    reason, usd, made = _why_not(row), usd_per_query(row), row.one_time
    if reason or usd is None or made is None:
        return _none(row, "training", reason or "no cost")
    interval, interval_reason = _bootstrap(
        [_repeats(row, evidence)],
        lambda qps: made.total_usd / _rent(row, qps[0]),
    )
    energy_n, co2e_n, energy_reason = _energy_break_even(row, made)
    return Crossing(
        variant=row.variant,
        profile=row.profile,
        against="training",
        queries=model.break_even(made.total_usd, usd),
        interval=interval,
        interval_reason=interval_reason,
        queries_energy=energy_n,
        queries_co2e=co2e_n,
        energy_reason=energy_reason,
    )


def _payback(row: ServingCost, base: ServingCost | None, baseline: str, evidence: Evidence) -> Crossing:
    if base is None:
        return _none(row, baseline, f"{baseline} was not load-tested on {row.profile}")
    reason = _why_not(row) or _why_not(base)
    usd, base_usd, made, base_made = usd_per_query(row), usd_per_query(base), row.one_time, base.one_time
    if reason or usd is None or base_usd is None or made is None or base_made is None:
        return _none(row, baseline, reason or "no cost")
    extra = made.total_usd - base_made.total_usd
    queries = model.payback(extra, usd, base_usd)
    if queries is None:
        more = usd / base_usd - 1
        return _none(row, baseline, f"never: a query is not cheaper ({more:+.1%} against {baseline})")

    def crossing(qps: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        saving = _rent(base, qps[1]) - _rent(row, qps[0])
        return np.where(saving > 0, max(0.0, extra) / np.where(saving > 0, saving, 1.0), np.inf)

    interval, interval_reason = _bootstrap([_repeats(row, evidence), _repeats(base, evidence)], crossing)
    energy_n, co2e_n, energy_reason = _energy_payback(row, base, made, base_made)
    return Crossing(
        variant=row.variant,
        profile=row.profile,
        against=baseline,
        queries=queries,
        interval=interval,
        interval_reason=interval_reason,
        queries_energy=energy_n,
        queries_co2e=co2e_n,
        energy_reason=energy_reason,
    )


def _why_not(row: ServingCost) -> str | None:
    if row.cost_usd_per_million_queries is None:
        return f"{row.variant} on {row.profile} has no cost: {'; '.join(row.invalid_reasons)}"
    if row.one_time is None:
        return f"the training behind {row.variant} has no record, so its cost is unknown"
    return None


def _none(row: ServingCost, against: str, reason: str) -> Crossing:
    return Crossing(variant=row.variant, profile=row.profile, against=against, queries=None, reason=reason)


def _repeats(row: ServingCost, evidence: Evidence) -> tuple[float, ...]:
    capacity = evidence.capacity_of(row.variant, row.profile)
    return capacity.repeats if capacity else ()


def _rent(row: ServingCost, qps: NDArray[np.float64]) -> NDArray[np.float64]:
    assert row.price is not None
    return row.price.usd_per_hour / model.SECONDS_PER_HOUR / qps


def _bootstrap(
    repeats: list[tuple[float, ...]], crossing: Callable[[list[NDArray[np.float64]]], NDArray[np.float64]]
) -> tuple[Interval | None, str | None]:
    """Draw each row's mean capacity as its repeats allow, and return the interval of the crossing, or why none.

    The draws are Student's t around the mean of the logarithms: resampling two to five values themselves covers 50 to
    85 % where 95 are meant.
    """
    if any(len(values) < MIN_REPEATS for values in repeats):
        return None, "the capacity was confirmed once: no repeats to resample"
    generator = np.random.default_rng(0)
    means = [_drawn_means(np.log(values), generator) for values in repeats]
    drawn = crossing(means)
    never = float(np.isinf(drawn).mean())
    if never > MAX_UNBOUNDED_SHARE:
        return None, f"in {never:.0%} of the draws it never pays back: unbounded above"
    low, high = np.quantile(drawn, [0.025, 0.975], method="inverted_cdf")
    return Interval(low=float(low), high=float(high), method="parametric bootstrap"), None


def _drawn_means(logs: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    error = logs.std(ddof=1) / math.sqrt(len(logs))
    return np.asarray(np.exp(logs.mean() + error * generator.standard_t(len(logs) - 1, size=DRAWS)))


def _energy_break_even(row: ServingCost, made: OneTimeCost) -> tuple[float | None, float | None, str | None]:
    reason = _incomparable(row, made)
    if reason or made.energy_j is None or not row.energy_j_per_query:
        return None, None, reason or "a query's energy is zero"
    co2e = row.gco2e_per_million_queries
    in_co2e = made.gco2e * 1e6 / co2e if made.gco2e is not None and co2e else None
    return model.break_even(made.energy_j, row.energy_j_per_query), in_co2e, None


def _energy_payback(
    row: ServingCost, base: ServingCost, made: OneTimeCost, base_made: OneTimeCost
) -> tuple[float | None, float | None, str | None]:
    reason = _incomparable(row, made) or _incomparable(base, base_made)
    energies = (made.energy_j, base_made.energy_j, row.energy_j_per_query, base.energy_j_per_query)
    if reason or any(energy is None for energy in energies):
        return None, None, reason or "energy unknown"
    made_j, base_made_j, query_j, base_query_j = (energy or 0.0 for energy in energies)
    in_energy = model.payback(made_j - base_made_j, query_j, base_query_j)
    grams = (made.gco2e, base_made.gco2e, row.gco2e_per_million_queries, base.gco2e_per_million_queries)
    in_co2e = None
    if all(value is not None for value in grams):
        made_g, base_made_g, row_g, base_g = (value or 0.0 for value in grams)
        in_co2e = model.payback(made_g - base_made_g, row_g / 1e6, base_g / 1e6)
    return in_energy, in_co2e, None if in_energy is not None else "never: a query does not use less energy"


def _incomparable(row: ServingCost, made: OneTimeCost) -> str | None:
    if made.energy_j is None:
        return "the energy of what was spent once is not known"
    if row.energy_j_per_query is None:
        return row.energy_reason or "the energy of a query is not known"
    if made.energy_method != row.energy_method:
        return f"training energy is by {made.energy_method}, serving energy by {row.energy_method}: not comparable"
    return None
