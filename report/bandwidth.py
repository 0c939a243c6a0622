"""The memory bandwidth of one thread, for the slope of the roofline."""

from __future__ import annotations

import time

import numpy as np

ELEMENTS = 16 * 2**20  # 64 MiB an array of float32: well past any cache of a core
REPEATS = 5
ARRAYS_MOVED = 3


def measure_bandwidth() -> float:
    """Return bytes a second of one thread that adds two arrays into a third (STREAM's Add; McCalpin 1995)."""
    first, second = np.ones(ELEMENTS, dtype=np.float32), np.ones(ELEMENTS, dtype=np.float32)
    out = np.zeros_like(first)
    best_s = float("inf")
    for _ in range(REPEATS):
        begin_s = time.perf_counter()
        np.add(first, second, out=out)
        best_s = min(best_s, time.perf_counter() - begin_s)
    return ARRAYS_MOVED * out.nbytes / best_s
