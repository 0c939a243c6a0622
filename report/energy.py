"""Joules of a metered window: what was counted, else an estimate from the price book's watts, else unknown."""

from __future__ import annotations

from collections.abc import Iterable

from report import model
from testbed.records import Energy, Usage
from testbed.records.cost import Price


def energy_of(usage: Usage, price: Price, *, cores: float | None) -> Energy:
    """Return the window's energy; an estimate is made from the priced share's watts and how busy its cores were.

    Args:
        usage: the window.
        price: what the window was charged at; its watts are those of the share that was used.
        cores: that were given; None for a GPU machine, which is taken as busy for the whole window.
    """
    if usage.energy.energy_j is not None:
        return usage.energy
    if price.watts_idle is None or price.watts_busy is None:
        return Energy(reason=f"{usage.energy.reason}; the price book has no watts for {price.device}")
    busy = 1.0 if cores is None else usage.cpu_s / (usage.wall_s * cores) if usage.wall_s else 0.0
    watts = model.power_w(price.watts_idle, price.watts_busy, busy)
    return Energy(
        energy_j=watts * usage.wall_s,
        method="estimate",
        reason=(
            f"{price.device}: {price.watts_idle:.3g} W idle to {price.watts_busy:.3g} W busy for the share used, "
            f"{min(busy, 1.0):.0%} busy"
        ),
    )


def add_energies(parts: Iterable[Energy]) -> Energy:
    """Return the sum; unknown where a part is, or where parts were obtained by different methods."""
    known = list(parts)
    missing = [part.reason for part in known if part.energy_j is None]
    if missing:
        return Energy(reason=f"a part has no energy: {missing[0]}")
    methods = {part.method for part in known}
    if len(methods) > 1:
        return Energy(reason=f"parts were obtained by different methods ({', '.join(sorted(map(str, methods)))})")
    reasons = sorted({part.reason for part in known if part.reason})
    return Energy(
        energy_j=sum(part.energy_j or 0.0 for part in known), method=methods.pop(), reason="; ".join(reasons) or None
    )


def grams(energy: Energy, gco2e_per_kwh: float) -> float | None:
    """Return gCO2e of an energy, None where it is unknown."""
    return None if energy.energy_j is None else energy.energy_j / model.JOULES_PER_KWH * gco2e_per_kwh
