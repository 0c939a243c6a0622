"""A training step under this machine's ceilings: what bounds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from testbed.ceilings import Rate
from testbed.records.training import RooflinePoint, TrainingRoofline
from train.ceilings import DTYPES, SIZES, gemm_flops_per_s
from train.probe import BatchCost, StepCost

# A step that waits longer than this for its data is bound by them, whatever its arithmetic does.
DATA_BOUND_SHARE = 0.2
# The norm reads the gradient; AdamW reads the weight, the gradient and two moments, and writes the weight and the
# moments: 4 bytes each. (A GPU clips in a pass of its own, which is not counted.)
OPTIMIZER_BYTES_A_PARAMETER = 8 * 4
# Of a bf16 working weight the gradient is read and written in FP32, and the updated FP32 weight read and written in
# bf16.
WORKING_BYTES_A_PARAMETER = 2 * (4 + 2)
# Its arithmetic: a dozen multiply-adds a parameter at most, which no step waits for.
OPTIMIZER_FLOPS_A_PARAMETER = 24

Part = Literal["forward", "backward", "optimizer", "step"]


def place(
    rows: Sequence[dict[str, Any]],
    cost: StepCost,
    *,
    num_parameters: int,
    num_narrow: int,
    num_processes: int,
    gemm: float,
    triad: float,
) -> TrainingRoofline:
    """Return where the steps stand.

    Args:
        rows: the journal's, those that were taken apart.
        cost: of a pass over a batch.
        num_parameters: that the optimiser updates.
        num_narrow: of these, those that have a bf16 working weight.
        num_processes: that share each batch; each reads all weights.
        gemm: best FLOP/s of the training's dtype, all processes together.
        triad: best bytes/s, all processes together.
    """
    shapes = [(row["num_texts"] / num_processes, row["num_padded_tokens"] / row["num_texts"]) for row in rows]

    def total(figure: BatchCost) -> float:
        return num_processes * sum(figure.at(*shape) for shape in shapes)

    updates, casts = (number * num_processes * len(rows) for number in (num_parameters, num_narrow))
    work = {
        "forward": (total(cost.forward_flops), total(cost.forward_bytes)),
        "backward": (total(cost.backward_flops), total(cost.backward_bytes)),
        "optimizer": (
            float(OPTIMIZER_FLOPS_A_PARAMETER * updates),
            float(OPTIMIZER_BYTES_A_PARAMETER * updates + WORKING_BYTES_A_PARAMETER * casts),
        ),
    }
    seconds = {part: sum(row[f"{part}_s"] for row in rows) for part in work}
    work["step"] = (sum(flops for flops, _ in work.values()), sum(moved for _, moved in work.values()))
    seconds["step"] = sum(row["wall_s"] for row in rows)
    waiting = sum(row["data_wait_s"] for row in rows) / seconds["step"]
    points = tuple(
        _point(part, *work[part], seconds[part], gemm=gemm, triad=triad, waiting=waiting if part == "step" else 0.0)
        for part in ("forward", "backward", "optimizer", "step")
    )
    whole = points[-1]
    reason = (
        f"{waiting:.1%} of the step is waiting for data; its arithmetic runs at {whole.share_of_gemm:.0%} of the GEMM "
        f"peak, its operators move {whole.share_of_triad:.0%} of what the triad moved a second"
    )
    return TrainingRoofline(
        gemm_flops_per_s=gemm, triad_bytes_per_s=triad, points=points, bound=whole.bound, reason=reason
    )


def _point(
    part: Part, flops: float, moved_bytes: float, seconds: float, *, gemm: float, triad: float, waiting: float
) -> RooflinePoint:
    share_of_gemm, share_of_triad = flops / seconds / gemm, moved_bytes / seconds / triad
    bound: Literal["compute", "memory", "data"] = "compute" if share_of_gemm >= share_of_triad else "memory"
    return RooflinePoint(
        part=part,
        flops=flops,
        moved_bytes=moved_bytes,
        seconds=seconds,
        flops_per_s=flops / seconds,
        bytes_per_s=moved_bytes / seconds,
        flops_per_byte=flops / moved_bytes,
        share_of_gemm=share_of_gemm,
        share_of_triad=share_of_triad,
        bound="data" if waiting >= DATA_BOUND_SHARE else bound,
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
