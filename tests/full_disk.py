"""Fills a small disk with checkpoints, with a teacher's answers and with a model; prints what was said each time.

    python tests/full_disk.py DISK STEPS.parquet DATASET CHECKPOINT

The checkpoint's weights and the teacher's hidden states of the data set are larger than the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from testbed.errors import UserError
from train.checkpoint import About, Checkpoints
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.student import train_student
from train.teacher import train_teacher


def main() -> None:
    """Fill the disk three times."""
    disk, steps, dataset, checkpoint = map(Path, sys.argv[1:])
    fill_with_checkpoints(disk, steps)
    Checkpoints(disk).clear()
    config = TrainConfig(
        max_length=32,
        precision="fp32",
        teacher=TeacherConfig(model=str(checkpoint), epochs=1),
        student=StudentConfig(layers=(0,), epochs=1),
    )
    for train in (
        lambda: train_student(config, dataset=dataset, teacher=checkpoint, folder=disk / "student"),
        lambda: train_teacher(config, dataset=dataset, folder=disk / "teacher"),
    ):
        try:
            train()
        except UserError as error:
            print(error)
    print("whole:", sorted(path.name for path in disk.glob("[!.]*")))


def fill_with_checkpoints(disk: Path, steps: Path) -> None:
    """Save step after step; a full disk must come before the hundredth."""
    checkpoints = Checkpoints(disk)
    for step in range(1, 100):
        about = About(step=step, epoch=0, batch=step, precision="fp32", precision_reason="", epochs=(), phases={})
        try:
            # each is larger than the one before, so that the disk fills up although old ones are dropped
            checkpoints.save(about, {"model": torch.full((step * 40_000,), float(step))}, steps)
        except UserError as error:
            print(error)
            break
    saved = Checkpoints(disk).latest()
    assert saved is not None
    print(f"whole: step {saved.about.step}, {bool((saved.state['model'] == saved.about.step).all())}")
    print("left over:", sorted(path.name for path in disk.glob(".*")))


if __name__ == "__main__":
    main()
