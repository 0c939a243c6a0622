"""Two processes that share each batch train as one does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from testbed.errors import UserError
from tests.tiny import write_checkpoint
from train.config import TeacherConfig, TrainConfig
from train.launch import launch
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


def config_for(model: Path, **changes: object) -> TrainConfig:
    teacher = TeacherConfig(model=str(model), epochs=5, learning_rate=3e-3)
    return TrainConfig(max_length=32, token_budget=512, precision="fp32", teacher=teacher, **changes)


def test_two_processes_give_the_loss_curve_of_one(tmp_path: Path, tiny_dataset: Path) -> None:
    # Dropout masks depend on the process's number, so that curves can be compared only without dropout.
    config = config_for(write_checkpoint(tmp_path / "start", dropout=0.0))
    one = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "one")
    two = launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=tmp_path / "two")
    curves = [pq.read_table(tmp_path / name / "steps.parquet").column("loss").to_numpy() for name in ("one", "two")]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-3, atol=1e-4)
    assert curves[0][-1] < 0.9 * curves[0][0]
    assert two.num_processes == 2
    assert two.num_samples == one.num_samples
    assert two.num_tokens == one.num_tokens
    assert one.step_split.sync_s == 0
    assert two.step_split.sync_s > 0
    logits = [np.load(tmp_path / name / "test_logits.npy") for name in ("one", "two")]
    np.testing.assert_allclose(logits[1], logits[0], atol=0.02)


def test_a_failure_in_the_processes_is_one_error(tmp_path: Path, tiny_dataset: Path) -> None:
    config = config_for(tmp_path / "nowhere")
    with pytest.raises(UserError, match="training the teacher in 2 processes failed"):
        launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=tmp_path / "two")
