"""One training process: ``python -m train teacher|student CONFIG.json …``, alone or started by torchrun.

On several machines, run the same on each of them:
``torchrun --nnodes 2 --node-rank R --master-addr HOST --nproc-per-node N -m train teacher CONFIG.json …``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.errors import UserError
from testbed.progress import say
from train.config import TrainConfig
from train.processes import leave
from train.student import train_student
from train.teacher import train_teacher


def main() -> int:
    """Train what the command line names; returns the exit status."""
    options = _parser().parse_args()
    try:
        config = TrainConfig.model_validate_json(options.config.read_text(encoding="utf-8"))
        shared = {"dataset": options.dataset, "folder": options.folder, "slow_storage_s": options.slow_storage_s}
        if options.stage == "teacher":
            train_teacher(config, **shared)
        else:
            train_student(config, teacher=options.teacher, **shared)
    except UserError as error:
        say(f"error: {error}")
        return 1
    finally:
        leave()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    parser.add_argument("stage", choices=["teacher", "student"])
    parser.add_argument("config", type=Path, help="the section train: as JSON")
    parser.add_argument("--dataset", type=Path, required=True, help="folder of the prepared data set")
    parser.add_argument("--folder", type=Path, required=True, help="where the checkpoint goes")
    parser.add_argument("--teacher", type=Path, help="checkpoint of the teacher, for a student")
    parser.add_argument("--slow-storage-s", type=float, default=0.0, help="fault: seconds that every read takes longer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
