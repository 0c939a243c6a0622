"""A training step under this machine's ceilings: what bounds it."""

from __future__ import annotations

from typing import Literal

import torch

from testbed.ceilings import Rate
from testbed.records.base import Frozen
from testbed.records.training import TrainingRun
from train.ceilings import DTYPES, SIZES, gemm_flops_per_s

# A step that waits longer than this for its data is bound by them, whatever its arithmetic does.
DATA_BOUND_SHARE = 0.2
# Products that run at less than this share of the peak are not what the step's time goes into.
COMPUTE_BOUND_SHARE = 0.5
# AdamW reads the weight, the gradient and two moments, and writes the weight and the moments, 4 bytes each.
OPTIMIZER_BYTES_A_PARAMETER = 7 * 4

Bound = Literal["compute", "memory", "data"]


class Roofline(Frozen):
    """Where a training stands.

    Attributes:
        bound: the verdict.
        reason: the figures that led to it.
        flops_per_s: of forward and backward pass, padding counted.
        share_of_gemm: of the measured peak of the same dtype and thread count.
        optimizer_bytes_per_s: that the optimiser's step must move at least, over its time.
        share_of_bandwidth: of the measured triad; None where no triad was given.
        data_wait_share: of the step.
    """

    bound: Bound
    reason: str
    flops_per_s: float
    share_of_gemm: float
    optimizer_bytes_per_s: float
    share_of_bandwidth: float | None
    data_wait_share: float


def place(run: TrainingRun, triad: Rate | None = None) -> Roofline:
    """Return where a training's steps stand under the ceilings that were measured on the same machine."""
    split = run.step_split
    assert run.gemm_flops_per_s is not None
    assert run.memory is not None
    measured_flops = run.model_flops * split.num_steps / run.num_steps
    flops_per_s = measured_flops / (split.forward_s + split.backward_s)
    trained_parameters = run.memory.parameters_bytes / 4
    optimizer_bytes_per_s = OPTIMIZER_BYTES_A_PARAMETER * trained_parameters * split.num_steps / split.optimizer_s
    waiting = split.data_wait_s / split.wall_s
    share = flops_per_s / run.gemm_flops_per_s
    bound: Bound = "memory"
    reason = f"products run at {share:.0%} of the GEMM peak: the passes between them, which move data, take the time"
    if waiting >= DATA_BOUND_SHARE:
        bound, reason = "data", f"{waiting:.0%} of the step is waiting for the next batch"
    elif share >= COMPUTE_BOUND_SHARE:
        bound, reason = "compute", f"products run at {share:.0%} of the GEMM peak"
    return Roofline(
        bound=bound,
        reason=reason,
        flops_per_s=flops_per_s,
        share_of_gemm=share,
        optimizer_bytes_per_s=optimizer_bytes_per_s,
        share_of_bandwidth=optimizer_bytes_per_s / triad.per_s if triad else None,
        data_wait_share=waiting,
    )


def torch_ceilings(device: torch.device) -> tuple[Rate, ...]:
    """Return torch's own GEMM rate of each dtype at its present thread count (about 2 s on a CPU)."""
    sizes = ", ".join(f"{size}×{size}" for size in SIZES)
    return tuple(
        Rate(
            what=f"torch {dtype} GEMM",
            num_threads=torch.get_num_threads() if device.type == "cpu" else 1,
            per_s=gemm_flops_per_s(dtype, device),
            unit="flops",
            how=f"best of {sizes}, {device.type}",
            repeats=1,
        )
        for dtype in DTYPES
    )


def copy_ceiling(device: torch.device, *, size_bytes: int = 256 * 1024 * 1024) -> Rate | None:
    """Return the bandwidth of copies from pinned memory to the device; None on a CPU, where nothing is copied."""
    if device.type != "cuda":
        return None
    source = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(size_bytes, dtype=torch.uint8, device=device)
    repeats = 10
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    target.copy_(source, non_blocking=True)
    begin.record()
    for _ in range(repeats):
        target.copy_(source, non_blocking=True)
    end.record()
    torch.cuda.synchronize(device)
    seconds = begin.elapsed_time(end) / 1e3 / repeats
    how = f"{size_bytes / 1e6:.0f} MB, pinned"
    return Rate(
        what="host to device", num_threads=1, per_s=size_bytes / seconds, unit="bytes", how=how, repeats=repeats
    )
