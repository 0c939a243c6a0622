"""The phases of one stage, each metered; a phase may be entered many times, and a resumed run goes on adding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    def become(self, usage: Mapping[str, Usage]) -> None:
        """Take these figures, such as those of all processes together, for what was measured so far."""
        assert self._open is None
        self._closed = dict(usage)

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


def together(processes: Sequence[tuple[int, Mapping[str, Usage]]]) -> dict[str, Usage]:
    """Return the phases of several processes, given with their local ranks, as one: they ran side by side.

    Seconds on the wall are the longest ones; CPU and device seconds, peaks and energy are summed. A CPU's energy
    counter counts the whole machine, so one process of each machine speaks for it; a GPU's is its own process's.
    """
    found: dict[str, Usage] = {}
    for local_rank, phases in processes:
        for name, usage in phases.items():
            if name not in found:
                found[name] = usage
                continue
            counts = local_rank == 0 or usage.device_s is not None
            before = found[name]
            found[name] = add(before, usage).model_copy(
                update={
                    "wall_s": max(before.wall_s, usage.wall_s),
                    "energy": _add_energy(before.energy, usage.energy) if counts else before.energy,
                    "peak_rss_bytes": _sum(before.peak_rss_bytes, usage.peak_rss_bytes),
                    "peak_device_bytes": _sum(before.peak_device_bytes, usage.peak_device_bytes),
                }
            )
    return found


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
