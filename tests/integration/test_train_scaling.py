"""Scaling is measured with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import write_checkpoint
from train.config import TeacherConfig, TrainConfig
from train.scaling import measure_scaling

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_two_processes_are_compared_with_one(tmp_path: Path, tiny_dataset: Path) -> None:
    start = write_checkpoint(tmp_path / "start")
    config = TrainConfig(max_length=32, token_budget=256, precision="fp32", teacher=TeacherConfig(model=str(start)))
    one, two = measure_scaling(config, dataset=tiny_dataset, num_processes=(1, 2))
    assert (one.num_processes, two.num_processes) == (1, 2)
    assert one.sync_share == 0 < two.sync_share < 1
    assert one.efficiency == 1
    assert two.efficiency == pytest.approx(two.samples_per_s / one.samples_per_s / 2)
