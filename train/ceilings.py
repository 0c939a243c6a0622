"""How fast this machine's matrix products are under torch, by dtype: the ceiling that MFU is a share of."""

from __future__ import annotations

import functools
import time

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Square products small enough to stay in a cache and large enough to fill every unit; the best one is the peak.
SIZES = (768, 1024, 2048)
SECONDS_A_SIZE = 0.15
# 128 MB an array.
TRIAD_FLOATS = 32 * 1024 * 1024
TRIAD_REPEATS = 5


@functools.cache
def gemm_flops_per_s(dtype: str, device: torch.device) -> float:
    """Return the peak rate of square matrix products, multiply-adds times 2, at torch's present thread count."""
    return max(product_flops_per_s(dtype, device, (size, size, size), seconds=SECONDS_A_SIZE) for size in SIZES)


@functools.cache
def triad_bytes_per_s(device: torch.device) -> float:
    """Return the bandwidth of a = b + s × c in FP32 (McCalpin 1995, STREAM) at torch's present thread count.

    One fused pass that reads two arrays and writes one; the best of five, as other work can only make it slower.
    """
    target, first, second = (torch.ones(TRIAD_FLOATS, device=device) for _ in range(3))
    best_s = float("inf")
    for _ in range(TRIAD_REPEATS):
        _synchronise(device)
        begin_s = time.perf_counter()
        torch.add(first, second, alpha=3.0, out=target)
        _synchronise(device)
        best_s = min(best_s, time.perf_counter() - begin_s)
    return 3.0 * target.numel() * target.element_size() / best_s


def product_flops_per_s(dtype: str, device: torch.device, shape: tuple[int, int, int], *, seconds: float) -> float:
    """Return the rate of one product [m, k] × [k, n], the best of repetitions over about ``seconds``.

    The best, not the mean: other work on the machine can only make it slower.

    Args:
        dtype: ``fp32``, ``bf16`` or ``fp16``.
        device: where.
        shape: m, k, n.
        seconds: how long to repeat it; at least twice.
    """
    m, k, n = shape
    left = torch.randn(m, k, device=device).to(DTYPES[dtype])
    right = torch.randn(k, n, device=device).to(DTYPES[dtype])
    best_s = float("inf")
    deadline_s = time.perf_counter() + seconds
    repeats = 0
    while repeats < 2 or time.perf_counter() < deadline_s:  # noqa: PLR2004 - the first one warms up
        _synchronise(device)
        begin_s = time.perf_counter()
        torch.mm(left, right)
        _synchronise(device)
        best_s = min(best_s, time.perf_counter() - begin_s)
        repeats += 1
    return 2.0 * m * k * n / best_s


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
