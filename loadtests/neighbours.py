"""What else ran on the cores of a load test: work of other processes, and time that a hypervisor took away."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")
# Columns of /proc/stat (proc(5)): user, nice and system are somebody's work; steal is the hypervisor's.
WORK, STEAL = (0, 1, 2), 7


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since boot, summed over some cores."""

    work_s: float
    steal_s: float


def read_cores(cores: Collection[int]) -> CoreTimes | None:
    """Return the times of these cores, or None where the kernel shows none."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    work = steal = 0
    try:
        lines = STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cores:
            work += sum(int(fields[column]) for column in WORK)
            steal += int(fields[STEAL])
    return CoreTimes(work * tick_s, steal * tick_s)


def other_share(before: CoreTimes | None, after: CoreTimes | None, *, own_s: float, wall_s: float) -> float | None:
    """Return how many cores' worth of work was not ours, hypervisor's included; None where it is not known.

    Args:
        before: at the start of the window.
        after: at its end.
        own_s: CPU seconds of the server and the generator.
        wall_s: length of the window.
    """
    if before is None or after is None or wall_s <= 0:
        return None
    grown_s = after.work_s - before.work_s + after.steal_s - before.steal_s
    return max(0.0, grown_s - own_s) / wall_s
