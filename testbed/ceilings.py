"""What this machine can do at best: matrix products by thread count, and memory bandwidth. No framework here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from pydantic import Field
from threadpoolctl import threadpool_info, threadpool_limits

from testbed.machine import usable_cores
from testbed.records.base import Frozen

GEMM_SIZE = 1536
# STREAM's rule: arrays together at least four times the last-level cache; 3 × 256 MB passes most.
TRIAD_FLOATS = 32 * 1024 * 1024
REPEATS = 5


class Rate(Frozen):
    """One measured ceiling.

    Attributes:
        what: such as ``numpy fp32 GEMM`` or ``triad``.
        num_threads: that worked on it.
        per_s: FLOP/s or bytes/s, the best of ``repeats``: other work can only make it slower.
        unit: ``flops`` or ``bytes``.
        how: size and library.
        repeats: how often it was timed.
    """

    what: str
    num_threads: int
    per_s: float = Field(gt=0)
    unit: str = Field(pattern="^(flops|bytes)$")
    how: str
    repeats: int


def measure() -> tuple[Rate, ...]:
    """Return GEMM rate and triad bandwidth for one thread and for every usable core (about 5 s)."""
    counts = sorted({1, max(1, math.floor(usable_cores()))})
    return (*(gemm(threads) for threads in counts), *(triad(threads) for threads in counts))


def gemm(num_threads: int, *, size: int = GEMM_SIZE) -> Rate:
    """Return the FP32 rate of numpy's product of two ``size`` × ``size`` matrices, multiply-adds times 2."""
    left, right = (np.random.default_rng(seed).random((size, size), dtype=np.float32) for seed in (0, 1))
    out = np.empty_like(left)
    with threadpool_limits(num_threads, user_api="blas"):
        seconds = _best(lambda: np.matmul(left, right, out=out))
    blas = next((pool["internal_api"] for pool in threadpool_info() if pool["user_api"] == "blas"), "numpy's own")
    how = f"{size}×{size}, {blas}"
    return Rate(
        what="numpy fp32 GEMM",
        num_threads=num_threads,
        per_s=2 * size**3 / seconds,
        unit="flops",
        how=how,
        repeats=REPEATS,
    )


def triad(num_threads: int, *, num_floats: int = TRIAD_FLOATS) -> Rate:
    """Return the memory bandwidth of a = b + s × c over float64 arrays (McCalpin 1995, STREAM).

    numpy does it in two passes (a = s × c; a += b), which move five arrays: two read and one written in the second, one
    read and one written in the first. Write-allocate traffic is not counted, as STREAM does not either.

    Args:
        num_threads: each takes its own part of the arrays; numpy lets go of the interpreter lock while it computes.
        num_floats: of each array.
    """
    first, second, third = (np.full(num_floats, value) for value in (0.0, 1.0, 2.0))
    bounds = np.linspace(0, num_floats, num_threads + 1).astype(int)
    parts = [slice(begin, end) for begin, end in pairwise(bounds)]

    def one(part: slice) -> None:
        np.multiply(third[part], 3.0, out=first[part])
        np.add(first[part], second[part], out=first[part])

    with ThreadPoolExecutor(num_threads) as pool:
        seconds = _best(lambda: list(pool.map(one, parts)))
    moved = 5 * num_floats * first.itemsize
    how = f"3 arrays of {num_floats * first.itemsize / 1e6:.0f} MB, numpy"
    return Rate(what="triad", num_threads=num_threads, per_s=moved / seconds, unit="bytes", how=how, repeats=REPEATS)


def _best(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(REPEATS):
        begin_s = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin_s)
    return min(times)
