"""What would change the decision: one lever at a time, all else as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from report.config import ReportConfig
from report.curves import Point, qps_within
from report.decision import Offer, accuracy_floor, best_offer
from testbed.records.cost import ServingCost
from testbed.records.decision import Flip

FACTORS = np.logspace(0, 4, 161)  # four decades each way, 15 % apart
SLO_FACTORS = np.logspace(0, 1, 41)  # a decade each way
HALVINGS = 30

Rows = tuple[ServingCost, ...]
Curves = dict[tuple[str, str], tuple[Point, ...]]


def flips(rows: Rows, config: ReportConfig, curves: Curves, *, slo_s: float) -> tuple[Flip, ...]:
    """Return, for traffic, SLO, accuracy floor and price, the nearest change that makes another choice."""
    floor = accuracy_floor(rows, config)
    chosen = best_offer(rows, floor, config)
    if chosen is None:
        return ()
    found = [*_traffic(rows, floor, config, chosen), *_floor(rows, floor, config, chosen)]
    found += [*_slo(rows, floor, config, chosen, curves, slo_s), *_price(rows, floor, config, chosen)]
    return tuple(found)


def _traffic(rows: Rows, floor: float, config: ReportConfig, chosen: Offer) -> Iterable[Flip]:
    mean = config.traffic.mean_qps if config.traffic else 1e6 / 86400
    for word, factors in (("more", FACTORS), ("less", 1 / FACTORS)):
        hit = _first_change(factors, lambda factor: best_offer(rows, floor, config, traffic_factor=factor), chosen)
        if hit is None:
            sentence = f"{chosen.name} stays the choice up to 10,000 times {word} traffic"
            yield Flip(lever="traffic", threshold=None, unit="queries/s", to=None, sentence=sentence)
            continue
        factor, other = hit
        verb = "rises above" if factor > 1 else "falls below"
        sentence = f"{_named(other)} once mean traffic {verb} {mean * factor:.3g} queries/s ({factor:.3g} times)"
        yield Flip(lever="traffic", threshold=mean * factor, unit="queries/s", to=_key(other), sentence=sentence)


def _floor(rows: Rows, floor: float, config: ReportConfig, chosen: Offer) -> Iterable[Flip]:
    accuracy = chosen.row.accuracy.value
    above = best_offer(rows, np.nextafter(accuracy, 2), config)
    yield Flip(
        lever="accuracy_floor",
        threshold=accuracy,
        unit="accuracy",
        to=_key(above),
        sentence=f"{_named(above)} once the accuracy floor is above {accuracy:.4f} (it is {floor:.4f})",
    )
    barred = sorted({row.accuracy.value for row in rows if row.accuracy.value < floor}, reverse=True)
    for lower in barred:
        below = best_offer(rows, lower, config)
        if below and below.row is not chosen.row:
            sentence = f"{_named(below)} once the accuracy floor is {lower:.4f} or lower"
            yield Flip(lever="accuracy_floor", threshold=lower, unit="accuracy", to=_key(below), sentence=sentence)
            return


def _slo(rows: Rows, floor: float, config: ReportConfig, chosen: Offer, curves: Curves, slo_s: float) -> Iterable[Flip]:
    def best_at(factor: float) -> Offer | None:
        return best_offer(at_slo(rows, curves, slo_s * factor, slo_s), floor, config)

    for word, factors in (("looser", SLO_FACTORS), ("stricter", 1 / SLO_FACTORS)):
        hit = _first_change(factors, best_at, chosen)
        if hit is None:
            sentence = f"{chosen.name} stays the choice for an SLO up to ten times {word}, by the loads that were run"
            yield Flip(lever="slo", threshold=None, unit="s", to=None, sentence=sentence)
            continue
        factor, other = hit
        sentence = f"{_named(other)} at an SLO of {slo_s * factor * 1000:.3g} ms, by the loads that were run"
        yield Flip(lever="slo", threshold=slo_s * factor, unit="s", to=_key(other), sentence=sentence)


def _price(rows: Rows, floor: float, config: ReportConfig, chosen: Offer) -> Iterable[Flip]:
    device = chosen.row.price.device if chosen.row.price else ""
    if all(row.price is None or row.price.device == device for row in rows):
        sentence = f"no change of price: every row is charged at the price of {device}"
        yield Flip(lever="price", threshold=None, unit="times", to=None, sentence=sentence)
        return
    hit = _first_change(FACTORS, lambda factor: best_offer(_dearer(rows, device, factor), floor, config), chosen)
    if hit is None:
        sentence = f"{chosen.name} stays the choice though {device} cost 10,000 times as much"
        yield Flip(lever="price", threshold=None, unit="times", to=None, sentence=sentence)
        return
    factor, other = hit
    sentence = f"{_named(other)} once {device} costs {factor:.3g} times as much"
    yield Flip(lever="price", threshold=factor, unit="times", to=_key(other), sentence=sentence)


def at_slo(rows: Rows, curves: Curves, slo_s: float, measured_slo_s: float) -> Rows:
    """Return the rows with what they carry within another SLO; one that carries nothing is not VALID."""
    changed = []
    for row in rows:
        qps = qps_within(curves.get((row.variant, row.profile), ()), slo_s, row, measured_slo_s)
        reasons = () if qps else (f"no measured load keeps p99 within {slo_s * 1000:.3g} ms",)
        update = {"max_qps_at_slo": qps, "valid": qps is not None and row.price is not None, "invalid_reasons": reasons}
        changed.append(row.model_copy(update=update))
    return tuple(changed)


def _dearer(rows: Rows, device: str, factor: float) -> Rows:
    changed = []
    for row in rows:
        if row.price and row.price.device == device:
            price = row.price.model_copy(update={"usd_per_hour": row.price.usd_per_hour * factor})
            changed.append(row.model_copy(update={"price": price}))
        else:
            changed.append(row)
    return tuple(changed)


def _first_change(
    factors: Iterable[float], best: Callable[[float], Offer | None], chosen: Offer
) -> tuple[float, Offer | None] | None:
    """Return the first factor with another choice, narrowed between it and the one before, or None."""
    before = 1.0
    for factor in map(float, factors):
        other = best(factor)
        if _key(other) != _key(chosen):
            return _narrow(before, factor, best, chosen)
        before = factor
    return None


def _narrow(
    same: float, changed: float, best: Callable[[float], Offer | None], chosen: Offer
) -> tuple[float, Offer | None]:
    for _ in range(HALVINGS):
        middle = (same * changed) ** 0.5
        if _key(best(middle)) == _key(chosen):
            same = middle
        else:
            changed = middle
    return changed, best(changed)


def _key(offer: Offer | None) -> str | None:
    return offer.name if offer else None


def _named(offer: Offer | None) -> str:
    return offer.name if offer else "nothing qualifies"
