"""Six architectures, from random tiny configurations, trained and distilled through the same code."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from tests.tiny import write_checkpoint
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.student import train_student
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "mpnet", "deberta-v2", "electra"])
def test_an_architecture_is_trained_and_distilled(tmp_path: Path, tiny_dataset: Path, architecture: str) -> None:
    start = write_checkpoint(tmp_path / "start", architecture)
    config = TrainConfig(
        max_length=32,
        token_budget=512,
        precision="fp32",
        teacher=TeacherConfig(model=str(start), epochs=1, learning_rate=3e-3),
        student=StudentConfig(layers=(1,), epochs=1, learning_rate=3e-3),
    )
    teacher = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    student = train_student(config, dataset=tiny_dataset, teacher=tmp_path / "teacher", folder=tmp_path / "student")
    assert teacher.model_flops > student.model_flops > 0
    assert teacher.model.num_parameters > student.model.num_parameters
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "student")
    assert loaded.config.num_hidden_layers == 1
    assert sum(p.numel() for p in loaded.parameters()) == student.model.num_parameters
    assert 0 <= student.epochs[0].train_loss < 5
