"""Throughput of one training at 1, 2, … processes: what another worker brings, and what synchronisation costs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from testbed.progress import say
from testbed.records.base import Frozen
from train.config import TrainConfig
from train.launch import launch


class ScalingPoint(Frozen):
    """One number of processes.

    Attributes:
        num_processes: that shared each batch.
        threads: of each.
        samples_per_s: of the whole training phase.
        sync_share: share of the step spent waiting for the other processes' gradients.
        efficiency: samples_per_s over that of the first point, over the ratio of processes.
        verdict: in words.
    """

    num_processes: int
    threads: int
    samples_per_s: float
    sync_share: float
    efficiency: float
    verdict: str


def measure_scaling(config: TrainConfig, *, dataset: Path, num_processes: Sequence[int]) -> tuple[ScalingPoint, ...]:
    """Train one epoch of the teacher at each number of processes, at the same global batch, and compare.

    Args:
        config: the section ``train:``; its epochs are set to 1.
        dataset: a prepared data set.
        num_processes: ascending; the first one is what the others are compared with.

    Raises:
        UserError: a process failed.
    """
    teacher = config.teacher.model_copy(update={"epochs": 1})
    once = config.model_copy(update={"teacher": teacher})
    points: list[ScalingPoint] = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in num_processes:
            say(f"scaling: one epoch with {number} process{'es' if number > 1 else ''}")
            run = launch(
                "teacher", once, num_processes=number, dataset=dataset, folder=Path(temporary, f"teacher-{number}")
            )
            first = points[0] if points else None
            speedup = run.samples_per_s / first.samples_per_s if first else 1.0
            expected = number / first.num_processes if first else 1.0
            points.append(
                ScalingPoint(
                    num_processes=number,
                    threads=int(str(run.switches["threads"])),
                    samples_per_s=run.samples_per_s,
                    sync_share=run.step_split.sync_s / run.step_split.wall_s,
                    efficiency=speedup / expected,
                    verdict=_verdict(number, speedup, expected),
                )
            )
    return tuple(points)


def _verdict(number: int, speedup: float, expected: float) -> str:
    if expected == 1:
        return "what the others are compared with"
    if speedup < 1:
        return f"{number} processes make it slower: {speedup:.2f}× the first one's samples/s"
    return f"{speedup:.2f}× the samples/s of {expected:g}× fewer processes"
