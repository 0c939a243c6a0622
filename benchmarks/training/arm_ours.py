"""One training by this project; prints one JSON line for compare.py."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from train.config import TeacherConfig, TrainConfig
from train.teacher import train_teacher


def main() -> None:
    """Train with the job that compare.py gives as JSON."""
    job = json.loads(sys.argv[1])
    # A budget that 32 of the longest texts fill exactly: every batch has the same number of texts as the peer's.
    config = TrainConfig(
        max_length=job["max_length"],
        token_budget=job["batch_size"] * job["max_length"],
        max_texts=job["batch_size"],
        precision=job["dtype"],
        seed=job["seed"],
        teacher=TeacherConfig(
            model=job["model"],
            epochs=job["epochs"],
            learning_rate=job["learning_rate"],
            warmup_share=job["warmup_share"],
            weight_decay=job["weight_decay"],
        ),
    )
    with tempfile.TemporaryDirectory() as temporary:
        run = train_teacher(config, dataset=Path(job["dataset"]), folder=Path(temporary, "teacher"))
        steps = pq.read_table(Path(temporary, "teacher", "steps.parquet")).to_pylist()
    split = run.step_split
    ends = [sum(epoch.wall_s for epoch in run.epochs[: index + 1]) for index in range(len(run.epochs))]
    result = {
        "num_samples": run.num_samples,
        "padded_tokens_per_text": run.num_padded_tokens / run.num_samples,
        "wall_s": run.phases["train"].wall_s,
        "cpu_s": run.phases["train"].cpu_s,
        "test_right": round(run.accuracy.value * run.accuracy.num_samples),
        "test_rows": run.accuracy.num_samples,
        "epochs": [
            {"end_s": end, "dev_accuracy": epoch.dev_accuracy} for end, epoch in zip(ends, run.epochs, strict=True)
        ],
        "data_wait_share": split.data_wait_s / split.wall_s,
        "parts_s": {name: value for name, value in split if name.endswith("_s")},
        "forward_backward_flops_per_s": run.model_flops / (split.forward_s + split.backward_s),
        "best_step_flops_per_s": max(row["model_flops"] / (row["forward_s"] + row["backward_s"]) for row in steps),
        "gemm_flops_per_s": run.gemm_flops_per_s,
        "machine": run.machine.model_dump(mode="json"),
        "versions": run.versions,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
