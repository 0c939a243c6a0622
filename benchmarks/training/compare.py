"""This project's training against `transformers.Trainer`: same model, data, batch size, epochs and dtype, interleaved.

    python -m benchmarks.training.compare DATASET OUT --peer-python PYTHON [--threads 2] [--seeds 3]

Both dtypes in one command. Each training is a process of its own; the order of the two changes from seed to seed.
Writes OUT/runs-<dtype>.jsonl (one line a training) and OUT/summary-<dtype>.json, and prints the README's table. The
peer needs `accelerate`; ``--peer-python`` names an interpreter of an environment that has it.
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

from testbed.metrics import mean_interval, wilson
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
COLUMNS = (
    "type",
    "samples/s, this project / Trainer",
    "per CPU s",
    "ratio (95 % interval)",
    "ratio per CPU s",
    "padded tokens a text",
    "test accuracy",
    "s to the Trainer's dev accuracy, each seed",
    "GEMM share",
    "waiting for data",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def main() -> None:
    """Run every training and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtypes", nargs="+", choices=["bf16", "fp32"], default=["bf16", "fp32"])
    parser.add_argument("--epochs", nargs="+", type=int, default=[3, 1], help="of each dtype")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", default=sys.executable)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [HEAD]
    for dtype, epochs in zip(options.dtypes, options.epochs, strict=True):
        runs = compare(dtype, epochs, options)
        figures = summary(runs)
        (options.out / f"summary-{dtype}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        rows.append(table_row(f"{dtype}, {options.seeds} pairs, {epochs} epochs", figures, runs))
    print("\n".join(rows))


def compare(dtype: str, epochs: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return every training of one dtype, both arms, seed by seed; each is also a line in its file."""
    runs = []
    with (options.out / f"runs-{dtype}.jsonl").open("w", encoding="utf-8") as stream:
        for seed in range(options.seeds):
            for arm in ARMS if seed % 2 == 0 else reversed(ARMS):
                job = JOB | {"dataset": str(options.dataset), "dtype": dtype, "epochs": epochs, "seed": seed}
                run = {"arm": arm, "dtype": dtype, "seed": seed, "threads": options.threads}
                run |= train(arm, job, options.peer_python, options.threads)
                say(f"{arm} seed {seed}: {run['num_samples'] / run['wall_s']:.1f} samples/s, {run['cpu_s']:.0f} CPU s")
                runs.append(run)
                stream.write(json.dumps(run) + "\n")
                stream.flush()
    return runs


def table_row(name: str, figures: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """Return one dtype's line of the README's table."""
    ours, peer = (figures["arms"][arm] for arm in ARMS)
    own = [run for run in runs if run["arm"] == "ours"]
    gemm = statistics.mean(run["forward_backward_flops_per_s"] / run["gemm_flops_per_s"] for run in own)
    waiting = statistics.mean(run["data_wait_share"] for run in own)
    cells = [name]
    cells += [f"{ours[key]:.0f} / {peer[key]:.0f}" for key in ("samples_per_s", "samples_per_cpu_s")]
    for key in ("ratio_samples_per_s", "ratio_samples_per_cpu_s"):
        ratio = figures[key]
        cells.append(f"{ratio['mean']:.2f} ({ratio['interval']['low']:.2f}–{ratio['interval']['high']:.2f})")
    cells.append(f"{ours['padded_tokens_per_text']:.1f} / {peer['padded_tokens_per_text']:.1f}")
    cells.append(" / ".join(_accuracy(arm) for arm in (ours, peer)))
    cells += [" / ".join(_seconds(arm["seconds_to_goal"]) for arm in (ours, peer)), f"{gemm:.0%}", f"{waiting:.1%}"]
    return "| " + " | ".join(cells) + " |"


def _accuracy(arm: dict[str, Any]) -> str:
    interval = arm["test_accuracy_interval"]
    return f"{arm['test_accuracy']:.3f} ({interval['low']:.3f}–{interval['high']:.3f})"


def _seconds(each: list[float | None]) -> str:
    return ", ".join("never" if seconds is None else f"{seconds:.0f}" for seconds in each)


def train(arm: str, job: dict[str, Any], peer_python: str, threads: int) -> dict[str, Any]:
    """Return the result of one training in a process of its own."""
    python = sys.executable if arm == "ours" else peer_python
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
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
    """Return ours over the peer's, seed by seed, with the interval of the mean where there are seeds enough for one."""
    ratios = [figure(ours) / figure(peer) for ours, peer in zip(by_arm["ours"], by_arm["trainer"], strict=True)]
    interval = mean_interval(ratios).model_dump() if len(ratios) > 1 else None
    return {"mean": statistics.mean(ratios), "each": ratios, "interval": interval}


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
