"""What torch.compile brings: the same training with it and without, in turn, compile time apart.

    python -m benchmarks.training.compiled DATASET OUT [--rounds 2] [--epochs 2] [--model minilm-l6]

Each training runs in a process of its own. In the first round torch's cache is empty; in the later ones it holds what
the earlier runs compiled. Writes OUT/compiled.json and prints one line a training and one ratio a type.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from testbed.machine import describe
from testbed.records import TrainingRun, load_as
from train.config import TeacherConfig, TrainConfig

# The first steps find their memory and their code cold, with a compiler or without.
WARM_UP_STEPS = 4


def main() -> None:
    """Run every pair and compare its halves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--model", default="minilm-l6")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(options.rounds):
            for precision in ("bf16", "fp32"):
                for compiled in (number % 2 == 0, number % 2 == 1):
                    config = TrainConfig(
                        precision=precision,
                        compile=compiled,
                        teacher=TeacherConfig(model=options.model, epochs=options.epochs),
                    )
                    runs.append(one(config, options.dataset, Path(temporary)) | {"round": number})
                    print(json.dumps(runs[-1]), flush=True)
    found = {"machine": describe().model_dump(mode="json"), "runs": runs, "ratio": {}}
    for precision in ("bf16", "fp32"):
        rates = {
            compiled: median(run["texts_per_s"] for run in runs if run["key"] == [precision, compiled])
            for compiled in (True, False)
        }
        found["ratio"][precision] = rates[True] / rates[False]
        print(f"{precision}: compiled {found['ratio'][precision]:.2f} times the ordinary texts/s")
    (options.out / "compiled.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def one(config: TrainConfig, dataset: Path, temporary: Path) -> dict[str, object]:
    """Train in a process of its own; returns its rate after the first steps, and the seconds of compiling."""
    section, folder = temporary / "train.json", temporary / "teacher"
    section.write_text(config.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "train", "teacher", str(section), "--dataset", str(dataset)]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(temporary / "cache")}
    subprocess.run([*command, "--folder", str(folder)], env=environment, check=True, stderr=subprocess.DEVNULL)
    run = load_as(TrainingRun, folder / "record.json")
    steps = pq.read_table(folder / "steps.parquet").to_pylist()[WARM_UP_STEPS:]
    return {
        "key": [config.precision, config.compile],
        "texts_per_s": sum(row["num_texts"] for row in steps) / sum(row["wall_s"] for row in steps),
        "compile_s": run.phases["compile"].wall_s if config.compile else 0.0,
        "accuracy": run.accuracy.value,
        "threads": run.switches["threads"],
    }


if __name__ == "__main__":
    main()
