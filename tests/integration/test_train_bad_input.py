"""What a training refuses in one sentence: data, models and checkpoints that cannot work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from testbed.errors import UserError
from testbed.records import file_sha256
from tests.tiny import LABELS, write_checkpoint
from train import checkpoint
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.launch import launch
from train.objective import LabelLoss
from train.student import train_student
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "start", num_layers=1)


def config_for(model: Path, **changes: object) -> TrainConfig:
    settings = {
        "max_length": 32,
        "token_budget": 1024,
        "precision": "fp32",
        "teacher": TeacherConfig(model=str(model), epochs=1),
        "student": StudentConfig(layers=(0,), epochs=1),
    }
    return TrainConfig(**(settings | changes))


def changed(dataset: Path, folder: Path, split: str, change: Callable[[list[str]], list[str]]) -> Path:
    """A copy of the data set with one split's lines changed, its record told."""
    shutil.copytree(dataset, folder)
    path = folder / f"{split}.jsonl"
    lines = change(path.read_text(encoding="utf-8").splitlines(keepends=True))
    path.write_text("".join(lines), encoding="utf-8")
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    record["splits"][split] |= {"sha256": file_sha256(path), "num_rows": len(lines)}
    (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_a_split_without_texts(tmp_path: Path, tiny_dataset: Path, start: Path) -> None:
    dataset = changed(tiny_dataset, tmp_path / "empty", "dev", lambda _: [])
    with pytest.raises(UserError, match=r"dev.jsonl: no texts; help: prepare the data set again"):
        train_teacher(config_for(start), dataset=dataset, folder=tmp_path / "teacher")


def test_texts_that_the_tokenizer_makes_nothing_of(tmp_path: Path, tiny_dataset: Path, start: Path) -> None:
    edit_json(start / "tokenizer.json", lambda tokenizer: tokenizer.update(post_processor=None))
    blank = json.dumps({"text": "\x00\x01", "label": LABELS[0]}) + "\n"
    dataset = changed(
        tiny_dataset, tmp_path / "blank", "train", lambda lines: [lines[0], blank, *lines[1:5], blank, *lines[5:]]
    )
    with pytest.raises(UserError, match=r"train.jsonl: no token in the texts of lines 2, 7 \(2 in all\); help: remove"):
        train_teacher(config_for(start), dataset=dataset, folder=tmp_path / "teacher")


def test_a_tokenizer_of_another_model(tmp_path: Path, tiny_dataset: Path, start: Path) -> None:
    edit_json(start / "tokenizer.json", lambda tokenizer: tokenizer["model"]["vocab"].update(what=9999))
    with pytest.raises(UserError, match=r"token id 9999, the model has embeddings for \d+ ids: the tokenizer is ano"):
        train_teacher(config_for(start), dataset=tiny_dataset, folder=tmp_path / "teacher")


def test_a_teacher_whose_configuration_is_damaged(tmp_path: Path, tiny_dataset: Path, start: Path) -> None:
    config = config_for(start)
    train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    (tmp_path / "teacher" / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"config.json: not a model's configuration .*; help: train the teacher again"):
        train_student(config, dataset=tiny_dataset, teacher=tmp_path / "teacher", folder=tmp_path / "student")


@pytest.mark.parametrize(
    ("architecture", "shape", "what"),
    [
        ("xlnet", {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64}, "no fixed number of positions"),
        ("funnel", {"d_model": 32, "block_sizes": [1], "n_head": 4, "d_head": 8}, "no fixed number of positions"),
        ("bart", {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}, "an encoder and a decoder"),
    ],
)
def test_models_of_another_kind(
    tmp_path: Path, tiny_dataset: Path, start: Path, architecture: str, shape: dict[str, Any], what: str
) -> None:
    (start / "model.safetensors").unlink()
    config = AutoConfig.for_model(architecture, vocab_size=80, num_labels=3, pad_token_id=0, **shape)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(start)
    with pytest.raises(UserError, match=f"has {what}; help: take an encoder such as BERT"):
        train_teacher(config_for(start), dataset=tiny_dataset, folder=tmp_path / "teacher")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: state.pop("scaler"), "'scaler'"),
        (lambda state: state["model"].update(more=torch.zeros(1)), "loading state_dict"),
        (lambda state: state["optimizer"]["param_groups"].pop(), "loaded state dict has a different number"),
    ],
)
def test_a_checkpoint_that_another_version_wrote(
    tmp_path: Path,
    tiny_dataset: Path,
    start: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any]], object],
    reason: str,
) -> None:
    config = config_for(start, checkpoint_every_steps=1)
    calls = []

    def spoilt_at_the_third(self: LabelLoss, model: object, batch: object) -> torch.Tensor:
        calls.append(batch)
        loss = call(self, model, batch)
        return loss * float("nan") if len(calls) == 3 else loss

    call = LabelLoss.__call__
    monkeypatch.setattr(LabelLoss, "__call__", spoilt_at_the_third)
    with pytest.raises(UserError, match="the loss is nan"):
        train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    (newest,) = tmp_path.glob(".teacher.training/*/checkpoints/checkpoint-00000002")
    state = torch.load(newest / checkpoint.STATE, weights_only=True)
    change(state)
    torch.save(state, newest / checkpoint.STATE)
    told = {checkpoint.STATE: file_sha256(newest / checkpoint.STATE)}
    edit_json(newest / checkpoint.ABOUT, lambda about: about["files"].update(told))
    with pytest.raises(UserError, match=f"checkpoint-00000002: its state is not this model's .*{reason}.*another vers"):
        train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")


@pytest.mark.long
def test_more_processes_than_texts(tmp_path: Path, tiny_dataset: Path, start: Path) -> None:
    dataset = changed(tiny_dataset, tmp_path / "one", "train", lambda lines: lines[:1])
    config = config_for(start)
    teacher = launch("teacher", config, num_processes=3, dataset=dataset, folder=tmp_path / "teacher")
    student = launch(
        "student",
        config,
        num_processes=3,
        dataset=dataset,
        folder=tmp_path / "student",
        teacher=tmp_path / "teacher",
    )
    assert (teacher.num_steps, teacher.num_samples) == (student.num_steps, student.num_samples) == (1, 1)
