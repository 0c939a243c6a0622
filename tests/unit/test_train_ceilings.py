"""Ceilings are rates of real work, and a training is placed under them by what bounds it."""

from __future__ import annotations

import pytest
import torch

from testbed.ceilings import gemm, triad
from train.ceilings import triad_bytes_per_s
from train.probe import BatchCost, StepCost
from train.roofline import copy_ceiling, place, torch_ceilings
from train.scaling import _verdict


def test_more_work_takes_as_much_longer() -> None:
    small, large = gemm(1, size=256), gemm(1, size=512)
    assert small.unit == large.unit == "flops"
    # the rate, not the time, stays: 8 times the work at a rate of the same order
    assert 0.1 < large.per_s / small.per_s < 10
    assert triad(2, num_floats=1 << 20).per_s > 1e8


def test_torch_gives_a_rate_for_each_type() -> None:
    rates = torch_ceilings(torch.device("cpu"))
    assert [rate.what for rate in rates] == ["torch fp32 GEMM", "torch bf16 GEMM", "torch fp16 GEMM"]
    assert all(rate.per_s > 1e8 for rate in rates)
    assert copy_ceiling(torch.device("cpu")) is None


def cost_of(flops: float, moved_bytes: float) -> StepCost:
    forward, backward = (BatchCost((share * flops / 3, 0.0, 0.0, 0.0)) for share in (1, 2))
    return StepCost(forward, backward, *(BatchCost((moved_bytes / 2, 0.0, 0.0, 0.0)) for _ in range(2)))


@pytest.mark.parametrize(
    ("waiting_s", "flops", "moved_bytes", "bound"),
    [(0.01, 70e9, 1e9, "compute"), (0.01, 9e9, 8e9, "memory"), (0.5, 70e9, 1e9, "data")],
)
def test_a_step_is_bound_by_the_ceiling_that_is_nearer(
    waiting_s: float, flops: float, moved_bytes: float, bound: str
) -> None:
    row = {"num_texts": 8, "num_padded_tokens": 80, "data_wait_s": waiting_s, "wall_s": 1 + waiting_s}
    rows = [row | {"forward_s": 0.3, "backward_s": 0.6, "optimizer_s": 0.1}] * 10
    numbers = {"num_parameters": 1_000_000, "num_narrow": 500_000, "num_processes": 1}
    found = place(rows, cost_of(flops, moved_bytes), **numbers, gemm=100e9, triad=10e9)
    points = {point.part: point for point in found.points}
    assert found.bound == points["step"].bound == bound
    assert points["forward"].flops_per_s == pytest.approx(flops / 3 / 0.3)
    assert points["forward"].flops_per_byte == pytest.approx(flops / 3 / (moved_bytes / 2))
    # 1,000,000 parameters × 32 bytes and half of them × 12 more in a tenth of a second, of 10 GB/s
    assert points["optimizer"].share_of_triad == pytest.approx(0.038)
    assert points["step"].flops == pytest.approx(sum(points[part].flops for part in points if part != "step"))
    assert points["optimizer"].bound == "memory"


def test_the_triad_moves_bytes_at_a_rate_of_memory() -> None:
    assert 1e8 < triad_bytes_per_s(torch.device("cpu")) < 1e13


def test_scaling_says_when_more_is_slower() -> None:
    assert _verdict(2, 0.8, 2.0) == "2 processes make it slower: 0.80× the first one's samples/s"
    assert "1.60×" in _verdict(2, 1.6, 2.0)
