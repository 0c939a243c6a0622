"""The control of a distillation: the same student at the same budget without its teacher, compared row by row."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.training import control
from testbed.dataset import read_record
from tests.tiny import write_checkpoint
from train.config import TrainConfig
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


def test_both_arms_differ_in_the_teacher_alone_and_are_paired_row_by_row(
    tmp_path: Path, tiny_dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = write_checkpoint(tmp_path / "start", num_layers=2, initializer_range=0.07)
    section = {
        "max_length": 32,
        "token_budget": 1024,
        "precision": "fp32",
        "teacher": {"model": str(start), "epochs": 1, "learning_rate": 2e-3},
        "student": {"layers": [0], "epochs": 2, "learning_rate": 2e-3},
    }
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"train": section}), encoding="utf-8")
    train_teacher(TrainConfig.model_validate(section), dataset=tiny_dataset, folder=tmp_path / "teacher")
    configs, train = [], control.train_student

    def noted(config: TrainConfig, **rest: Path) -> object:
        configs.append(config)
        return train(config, **rest)

    monkeypatch.setattr(control, "train_student", noted)
    arguments = ["control", str(tiny_dataset), str(tmp_path / "teacher"), str(tmp_path / "out"), "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--experiment", str(tmp_path / "experiment.yaml")])
    control.main()

    taught, alone = configs[0::2], configs[1::2]
    assert [config.seed for config in taught] == [config.seed for config in alone] == [0, 1]
    for with_teacher, without in zip(taught, alone, strict=True):
        assert with_teacher.student.soft_weight > 0
        assert without.student.model_copy(update=with_teacher.student.model_dump(include=set(control.ALONE))) == (
            with_teacher.student
        )
        assert without.model_copy(update={"student": with_teacher.student}) == with_teacher
        assert without.student.model_dump(include=set(control.ALONE)) == control.ALONE
    found = json.loads((tmp_path / "out" / "control.json").read_text(encoding="utf-8"))
    rows = read_record(tiny_dataset).splits["test"].num_rows
    for arm in ("with_teacher", "control"):
        right = [share * rows for share in found[arm]["each"]]
        assert right == pytest.approx([round(number) for number in right])
        assert found[arm]["mean"] == pytest.approx(sum(right) / rows / 2)
    assert found["difference"] == pytest.approx(found["with_teacher"]["mean"] - found["control"]["mean"])
    interval = found["difference_interval"]
    assert interval["low"] <= found["difference"] <= interval["high"]
    assert "difference" in capsys.readouterr().out
