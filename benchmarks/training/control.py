"""What the teacher brings: the same student with it and without it, at the same epochs, over several seeds.

    python -m benchmarks.training.control DATASET TEACHER OUT [--seeds 3] [--experiment experiments/trec.yaml]

The control learns from the labels alone (hard_weight 1, soft_weight 0, hidden_weight 0); layers it starts from, data,
epochs and learning rate are the same. Both test on the same rows, so the difference is paired, row by row. Writes
OUT/control.json and prints one line an arm and the difference.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from testbed.dataset import read_split
from testbed.metrics import mean_interval, wilson
from train.config import TrainConfig
from train.student import train_student

ALONE = {"hard_weight": 1.0, "soft_weight": 0.0, "hidden_weight": 0.0}


def main() -> None:
    """Train both arms for each seed and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--experiment", type=Path, default=Path("experiments/trec.yaml"))
    options = parser.parse_args()
    section = yaml.safe_load(options.experiment.read_text(encoding="utf-8")).get("train", {})
    taught, alone = [], []
    for seed in range(options.seeds):
        config = TrainConfig.model_validate(section | {"seed": seed})
        taught.append(right(config, options.dataset, options.teacher))
        control = config.model_copy(update={"student": config.student.model_copy(update=ALONE)})
        alone.append(right(control, options.dataset, options.teacher))
    difference = mean_interval((np.mean(taught, axis=0) - np.mean(alone, axis=0)).tolist())
    found = {
        "config": TrainConfig.model_validate(section).model_dump(mode="json"),
        "with_teacher": arm(taught),
        "control": arm(alone),
        "difference": float(np.mean(taught) - np.mean(alone)),
        "difference_interval": difference.model_dump(),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "control.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name in ("with_teacher", "control"):
        print(name, json.dumps(found[name]))
    print(f"difference {found['difference']:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})")


def right(config: TrainConfig, dataset: Path, teacher: Path) -> NDArray[np.float64]:
    """Return, for each test row, whether a student trained so is right (1.0) or not."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "student")
        train_student(config, dataset=dataset, teacher=teacher, folder=folder)
        logits = np.load(folder / "test_logits.npy")
    return (logits.argmax(axis=1) == np.asarray(read_split(dataset, "test").labels)).astype(np.float64)


def arm(runs: list[NDArray[np.float64]]) -> dict[str, object]:
    """Return each seed's accuracy, and that of all together with Wilson's interval of one seed's rows."""
    mean = float(np.mean(runs))
    rows = len(runs[0])
    interval = wilson(round(mean * rows), rows)
    return {"each": [float(run.mean()) for run in runs], "mean": mean, "interval": interval.model_dump()}


if __name__ == "__main__":
    main()
