"""Fixtures that several stages' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from quantize.config import QuantizeConfig
from testbed.dataset import DatasetConfig, prepare
from tests.tiny import write_checkpoint, write_csv

TINY_VARIANTS = ("teacher-fp32", "student-fp32", "student-fp16", "student-int8")


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small learnable data set, prepared: ``{train,dev,test}.jsonl`` and ``record.json``."""
    folder = tmp_path_factory.mktemp("data")
    source = write_csv(folder / "tiny.csv", rows=600)
    prepare(DatasetConfig(source=str(source)), folder / "dataset")
    return folder / "dataset"


@pytest.fixture(scope="session")
def tiny_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random checkpoints of a teacher and a student that share their tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        "teacher": write_checkpoint(folder / "teacher", num_layers=3, max_length=32),
        "student": write_checkpoint(folder / "student", num_layers=2, max_length=32, seed=1),
    }


@pytest.fixture(scope="session")
def tiny_bundle(
    tmp_path_factory: pytest.TempPathFactory, tiny_dataset: Path, tiny_checkpoints: dict[str, Path]
) -> Path:
    """A small but real bundle of both models: FP32, FP16 and INT8 variants, each in both layouts."""
    from quantize.build import build_bundle

    folder = tmp_path_factory.mktemp("bundles") / "bundle"
    config = QuantizeConfig(variants=TINY_VARIANTS, speed_rounds=4)
    build_bundle(config, name="tiny", dataset=tiny_dataset, checkpoints=tiny_checkpoints, folder=folder)
    return folder
