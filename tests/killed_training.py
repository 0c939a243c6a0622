"""Trains a teacher again and again, killing itself (SIGKILL) at given moments; run by test_train_resume.py.

    python tests/killed_training.py CONFIG.json DATASET FOLDER MOMENT…

A moment is ``step:N`` (as step N begins), ``sync:N`` (as the N-th file or folder of an attempt is about to be flushed
to disk, that is inside a save) or ``none``. Each attempt is a fork, so that the imports are paid for once. Prints one
line per attempt: the moment, and the signal that ended it or its exit status.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from testbed import folders
from train.clock import StepClock
from train.config import TrainConfig
from train.teacher import train_teacher


def kill_at(moment: str) -> None:
    """Arrange for this process to be killed at the moment."""
    kind, _, number = moment.partition(":")
    seen = 0

    def count_down(index: int) -> None:
        if index == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    if kind == "step":
        begin = StepClock.begin

        def killed_begin(self: StepClock, step: int) -> None:
            count_down(step)
            begin(self, step)

        StepClock.begin = killed_begin
    elif kind == "sync":
        sync_path = folders.sync_path

        def killed_sync(path: Path) -> None:
            nonlocal seen
            seen += 1
            count_down(seen)
            sync_path(path)

        folders.sync_path = killed_sync


def attempt(config: TrainConfig, dataset: Path, folder: Path, moment: str) -> str:
    """Train in a fork; returns how that ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            kill_at(moment)
            train_teacher(config, dataset=dataset, folder=folder)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return str(os.WEXITSTATUS(status))


if __name__ == "__main__":
    section, dataset_folder, checkpoint_folder, *moments = sys.argv[1:]
    train_config = TrainConfig.model_validate_json(Path(section).read_text(encoding="utf-8"))
    for wanted in moments:
        print(wanted, attempt(train_config, Path(dataset_folder), Path(checkpoint_folder), wanted), flush=True)
