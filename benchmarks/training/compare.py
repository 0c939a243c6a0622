"""This project's training against `transformers.Trainer`: same model, data, batch size, epochs and dtype, interleaved.

    python -m benchmarks.training.compare DATASET OUT [--dtype bf16] [--seeds 3] [--peer-python PYTHON]

Each training is a process of its own with one thread, so that its CPU seconds say what it computed even where other
work shares the machine. The order of the two changes from seed to seed. Writes OUT/runs.jsonl (one line a training) and
OUT/summary.json. The peer needs `accelerate`; ``--peer-python`` names an interpreter of an environment that has it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.metrics import bootstrap_mean, wilson
from testbed.progress import say

JOB = {
    "model": "minilm-l6",
    "batch_size": 32,
    "max_length": 64,
    "learning_rate": 2e-4,
    "warmup_share": 0.1,
    "weight_decay": 0.01,
}
ARMS = ("ours", "trainer")


def main() -> None:
    """Run every training and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peer-python", default=sys.executable)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = []
    with (options.out / "runs.jsonl").open("a", encoding="utf-8") as stream:
        for seed in range(options.seeds):
            for arm in ARMS if seed % 2 == 0 else reversed(ARMS):
                job = JOB | {
                    "dataset": str(options.dataset),
                    "dtype": options.dtype,
                    "epochs": options.epochs,
                    "seed": seed,
                }
                run = {"arm": arm, "dtype": options.dtype, "seed": seed} | train(arm, job, options.peer_python)
                say(f"{arm} seed {seed}: {run['num_samples'] / run['wall_s']:.1f} samples/s, {run['cpu_s']:.0f} CPU s")
                runs.append(run)
                stream.write(json.dumps(run) + "\n")
                stream.flush()
    (options.out / "summary.json").write_text(json.dumps(summary(runs), indent=1) + "\n", encoding="utf-8")


def train(arm: str, job: dict[str, Any], peer_python: str) -> dict[str, Any]:
    """Return the result of one training in a process of its own."""
    python = sys.executable if arm == "ours" else peer_python
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [python, "-m", f"benchmarks.training.arm_{arm}", json.dumps(job)]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the ratios, paired by seed, and each arm's own figures."""
    by_arm = {arm: [run for run in runs if run["arm"] == arm] for arm in ARMS}
    goal = statistics.mean(run["epochs"][-1]["dev_accuracy"] for run in by_arm["trainer"])
    return {
        "arms": {arm: arm_summary(own, goal) for arm, own in by_arm.items()},
        "dev_accuracy_goal": goal,
        "ratio_samples_per_s": paired(by_arm, lambda run: run["num_samples"] / run["wall_s"]),
        "ratio_samples_per_cpu_s": paired(by_arm, lambda run: run["num_samples"] / run["cpu_s"]),
    }


def paired(by_arm: dict[str, list[dict[str, Any]]], figure: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
    """Return ours over the peer's, seed by seed, with the bootstrap interval of the mean."""
    ratios = [figure(ours) / figure(peer) for ours, peer in zip(by_arm["ours"], by_arm["trainer"], strict=True)]
    return {"mean": statistics.mean(ratios), "each": ratios, "interval": bootstrap_mean(ratios).model_dump()}


def arm_summary(runs: list[dict[str, Any]], goal: float) -> dict[str, Any]:
    """Return means over the seeds; accuracy with the interval of all seeds' test rows together."""
    right, rows = sum(run["test_right"] for run in runs), sum(run["test_rows"] for run in runs)
    return {
        "samples_per_s": statistics.mean(run["num_samples"] / run["wall_s"] for run in runs),
        "samples_per_cpu_s": statistics.mean(run["num_samples"] / run["cpu_s"] for run in runs),
        "padded_tokens_per_text": statistics.mean(run["padded_tokens_per_text"] for run in runs),
        "test_accuracy": right / rows,
        "test_accuracy_interval": wilson(right, rows).model_dump(),
        "seconds_to_goal": [first_epoch_end(run, goal) for run in runs],
    }


def first_epoch_end(run: dict[str, Any], goal: float) -> float | None:
    """Return the training seconds to the end of the first epoch that reached the goal; None where none did."""
    return next((epoch["end_s"] for epoch in run["epochs"] if epoch["dev_accuracy"] >= goal), None)


if __name__ == "__main__":
    main()
