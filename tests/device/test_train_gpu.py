"""Training on a GPU: what a CPU cannot show. Needs one NVIDIA GPU; skipped aloud without it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from testbed.records import TrainingRun
from tests.tiny import write_checkpoint
from train.clock import GPU_SAMPLE_EVERY
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.roofline import copy_ceiling
from train.student import train_student
from train.teacher import train_teacher

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU that torch can use on this machine"),
]


def train(tmp_path: Path, dataset: Path, *, precision: str) -> TrainingRun:
    start = write_checkpoint(tmp_path / "start", num_layers=3)
    recipe = {"epochs": 6, "learning_rate": 5e-3}
    config = TrainConfig(
        max_length=32,
        token_budget=256,
        precision=precision,
        teacher=TeacherConfig(model=str(start), **recipe),
        student=StudentConfig(layers=(0, 2), **recipe),
    )
    run = train_teacher(config, dataset=dataset, folder=tmp_path / "teacher")
    train_student(config, dataset=dataset, teacher=tmp_path / "teacher", folder=tmp_path / "student")
    return run


@pytest.mark.parametrize("precision", ["auto", "fp16"])
def test_a_gpu_learns_and_says_where_its_steps_go(tmp_path: Path, tiny_dataset: Path, precision: str) -> None:
    run = train(tmp_path, tiny_dataset, precision=precision)
    assert run.accuracy.value > 0.9
    assert run.usage.device_s is not None
    assert run.memory is not None
    assert run.memory.measured_peak_bytes is not None
    assert run.clock_events is not None
    assert run.clock_events.num_samples
    assert run.clock_events.throttled_share is not None
    assert run.clock_events.max_sm_mhz is not None
    rows = pq.read_table(tmp_path / "teacher" / "steps.parquet").to_pylist()
    sampled = [row for row in rows if row["forward_s"] is not None]
    assert [row["step"] for row in sampled] == list(range(0, run.num_steps, GPU_SAMPLE_EVERY))
    split = run.step_split
    parts = split.data_wait_s + split.copy_s + split.forward_s + split.backward_s + split.optimizer_s + split.other_s
    assert parts == pytest.approx(split.wall_s, rel=0.03)


def test_copies_to_the_device_have_a_ceiling() -> None:
    rate = copy_ceiling(torch.device("cuda", 0))
    assert rate is not None
    assert rate.per_s > 1e9
