"""Ceilings are rates of real work, and a training is placed under them by what bounds it."""

from __future__ import annotations

import pytest
import torch

from testbed.ceilings import Rate, gemm, triad
from testbed.machine import provenance
from testbed.records import Accuracy, Energy, Interval, MemoryLedger, ModelShape, StepSplit, TrainingRun, Usage
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


def run_with(*, waiting_s: float, flops: float) -> TrainingRun:
    usage = Usage(wall_s=10, cpu_s=10, energy=Energy(reason="no counter"))
    split = StepSplit(
        num_steps=10,
        data_wait_s=waiting_s,
        copy_s=0,
        forward_s=3,
        backward_s=6,
        sync_s=0,
        optimizer_s=1,
        other_s=0,
        wall_s=10 + waiting_s,
    )
    ledger = MemoryLedger(
        parameters_bytes=4_000_000,
        gradients_bytes=0,
        optimizer_bytes=0,
        activations_bytes=0,
        predicted_bytes=0,
        measured_peak_bytes=None,
    )
    return TrainingRun(
        **provenance({}, {}),
        stage="teacher",
        initialised_from="x",
        model=ModelShape(architecture="x", num_parameters=1, num_layers=1, hidden_size=1, num_labels=2, max_length=8),
        seed=0,
        usage=usage,
        phases={"train": usage},
        dtype="fp32",
        dtype_reason="asked for",
        num_steps=10,
        num_samples=1,
        num_tokens=1,
        num_padded_tokens=1,
        num_truncated=0,
        samples_per_s=1,
        tokens_per_s=1,
        model_flops=flops,
        gemm_flops_per_s=100e9,
        step_split=split,
        memory=ledger,
        epochs=(),
        accuracy=Accuracy(value=1, interval=Interval(low=0, high=1, method="wilson"), num_samples=1),
        checkpoint={},
    )


@pytest.mark.parametrize(
    ("waiting_s", "flops", "bound"), [(0.1, 720e9, "compute"), (0.1, 90e9, "memory"), (5.0, 720e9, "data")]
)
def test_a_training_is_bound_by_what_takes_its_time(waiting_s: float, flops: float, bound: str) -> None:
    bandwidth = Rate(what="triad", num_threads=1, per_s=1e9, unit="bytes", how="", repeats=1)
    found = place(run_with(waiting_s=waiting_s, flops=flops), bandwidth)
    assert found.bound == bound
    assert found.share_of_gemm == pytest.approx(flops / 9 / 100e9)
    # 1,000,000 parameters × 28 bytes × 10 steps in one second
    assert found.share_of_bandwidth == pytest.approx(0.28)


def test_scaling_says_when_more_is_slower() -> None:
    assert _verdict(2, 0.8, 2.0) == "2 processes make it slower: 0.80× the first one's samples/s"
    assert "1.60×" in _verdict(2, 1.6, 2.0)
