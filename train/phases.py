"""The phases of one stage, each metered; a phase may be entered many times, and a resumed run goes on adding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from testbed.meter import Meter
from testbed.records.base import Energy, Usage


class Phases:
    """Usage by phase.

    Args:
        device: index of the GPU that works in them, or None.
    """

    def __init__(self, device: int | None) -> None:
        self._device = device
        self._closed: dict[str, Usage] = {}
        self._open: tuple[str, Meter] | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Meter the block; phases do not nest."""
        assert self._open is None, f"phase {name} inside another"
        meter = Meter(device=self._device)
        self._open = (name, meter)
        meter.begin()
        try:
            yield
        finally:
            self._add(name, meter.end())
            self._open = None

    def go_on_from(self, earlier: Mapping[str, Usage]) -> None:
        """Add what an earlier attempt had used up to the checkpoint that this one resumes."""
        for name, usage in earlier.items():
            self._add(name, usage)

    def so_far(self) -> dict[str, Usage]:
        """Return the usage of each phase, the open one included."""
        found = dict(self._closed)
        if self._open:
            name, meter = self._open
            usage = meter.end()
            found[name] = add(found[name], usage) if name in found else usage
        return found

    def total(self) -> Usage:
        """Return the sum of the closed phases."""
        first, *others = self._closed.values()
        for usage in others:
            first = add(first, usage)
        return first

    def _add(self, name: str, usage: Usage) -> None:
        self._closed[name] = add(self._closed[name], usage) if name in self._closed else usage


def add(first: Usage, second: Usage) -> Usage:
    """Return two windows as one: sums, and the larger of two peaks."""
    return Usage(
        wall_s=first.wall_s + second.wall_s,
        cpu_s=first.cpu_s + second.cpu_s,
        device_s=_sum(first.device_s, second.device_s),
        energy=_add_energy(first.energy, second.energy),
        peak_rss_bytes=_larger(first.peak_rss_bytes, second.peak_rss_bytes),
        peak_device_bytes=_larger(first.peak_device_bytes, second.peak_device_bytes),
        context_switches=_sum(first.context_switches, second.context_switches),
    )


def _add_energy(first: Energy, second: Energy) -> Energy:
    if first.energy_j is None:
        return first
    if second.energy_j is None:
        return second
    if first.method != second.method:
        return Energy(reason=f"measured by {first.method} in one part and by {second.method} in another")
    return Energy(energy_j=first.energy_j + second.energy_j, method=first.method, reason=first.reason)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _larger(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else max(first, second)
