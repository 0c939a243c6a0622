"""Several training processes on this machine, through torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from testbed.errors import UserError
from testbed.machine import usable_cores
from testbed.records.files import load_as
from testbed.records.training import TrainingRun
from train.config import TrainConfig


def launch(
    stage: Literal["teacher", "student"],
    config: TrainConfig,
    *,
    num_processes: int,
    dataset: Path,
    folder: Path,
    teacher: Path | None = None,
    slow_storage_s: float = 0.0,
) -> TrainingRun:
    """Train in ``num_processes`` processes that share each batch; returns the main one's record.

    The usable cores are divided among them, unless OMP_NUM_THREADS says else.

    Raises:
        UserError: a process failed; it has said why on standard error.
    """
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, int(usable_cores()) // num_processes)))
    with tempfile.TemporaryDirectory() as temporary:
        section = Path(temporary, "train.json")
        section.write_text(config.model_dump_json(), encoding="utf-8")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(num_processes), "-m", "train", stage, str(section)]
        command += ["--dataset", str(dataset), "--folder", str(folder), "--slow-storage-s", str(slow_storage_s)]
        if teacher is not None:
            command += ["--teacher", str(teacher)]
        status = _run(command, environment)
    if status:
        msg = f"training the {stage} in {num_processes} processes failed (status {status}); help: see the lines above"
        raise UserError(msg)
    return load_as(TrainingRun, folder / "record.json")


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run torchrun and return its status; where this process is asked to stop, so are the training ones, which save.

    They have sessions of their own: were torchrun killed, they would train on without it. It is given one as well, so
    that Ctrl-C reaches it once and from here.
    """
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
