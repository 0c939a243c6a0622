"""A teacher and its student on a tiny data set: what they leave on disk, and that they learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForSequenceClassification

from testbed.dataset import read_record, read_split
from testbed.errors import UserError
from testbed.records import TrainingRun, file_sha256, load_as
from testbed.tokenization import TextTokenizer
from tests.tiny import LABELS, write_checkpoint
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.student import train_student
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


def config_for(model: Path, **changes: object) -> TrainConfig:
    recipe = {"epochs": 8, "learning_rate": 2e-3}
    settings = {
        "max_length": 32,
        "token_budget": 256,
        "precision": "fp32",
        "teacher": TeacherConfig(model=str(model), **recipe),
        "student": StudentConfig(layers=(0, 2), **recipe),
    }
    return TrainConfig(**(settings | changes))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_dataset: Path) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    config = config_for(write_checkpoint(folder / "start", num_layers=3, initializer_range=0.07))
    train_teacher(config, dataset=tiny_dataset, folder=folder / "teacher")
    train_student(config, dataset=tiny_dataset, teacher=folder / "teacher", folder=folder / "student")
    return folder


@pytest.mark.parametrize("stage", ["teacher", "student"])
def test_the_checkpoint_is_a_hugging_face_folder_that_gives_the_recorded_logits(
    trained: Path, tiny_dataset: Path, stage: str
) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(trained / stage).eval()
    assert tuple(model.config.id2label[i] for i in range(3)) == read_record(tiny_dataset).labels == LABELS
    assert model.config.num_hidden_layers == {"teacher": 3, "student": 2}[stage]
    tokenizer = TextTokenizer(trained / stage / "tokenizer.json", max_length=32)
    logits = np.load(trained / stage / "test_logits.npy")
    test = read_split(tiny_dataset, "test")
    for row, text in enumerate(test.texts[:10]):
        with torch.inference_mode():
            alone = model(input_ids=torch.tensor([tokenizer.encode(text)])).logits.numpy()
        np.testing.assert_allclose(logits[row], alone[0], atol=1e-4)


@pytest.mark.parametrize("stage", ["teacher", "student"])
def test_the_record_adds_up(trained: Path, tiny_dataset: Path, stage: str) -> None:
    record = load_as(TrainingRun, trained / stage / "record.json")
    steps = pq.read_table(trained / stage / "steps.parquet").to_pylist()
    split = record.step_split
    parts = split.data_wait_s + split.copy_s + split.forward_s + split.backward_s + split.sync_s
    assert parts + split.optimizer_s + split.other_s == pytest.approx(split.wall_s, rel=0.03)
    for row in steps:
        own = sum(row[f"{part}_s"] for part in ("data_wait", "copy", "forward", "backward", "sync", "optimizer"))
        assert own + row["other_s"] == pytest.approx(row["wall_s"], rel=0.03)
    assert [row["step"] for row in steps] == list(range(record.num_steps))
    assert record.num_samples == 8 * record_rows(tiny_dataset, "train") == sum(row["num_texts"] for row in steps)
    assert record.num_tokens <= record.num_padded_tokens < 1.25 * record.num_tokens
    assert record.accuracy.value > 0.9
    assert record.usage.wall_s == pytest.approx(sum(usage.wall_s for usage in record.phases.values()))
    assert {"load", "tokenize", "train", "evaluate", "save"} <= set(record.phases)
    assert record.memory is not None
    assert record.memory.measured_peak_bytes is not None
    for name, sha256 in record.checkpoint.items():
        assert file_sha256(trained / stage / name) == sha256
    assert not list(trained.glob(".*"))


def test_steps_are_shown_in_tensorboard(trained: Path) -> None:
    events = EventAccumulator(str(trained / "teacher" / "tensorboard"))
    events.Reload()
    steps = pq.read_table(trained / "teacher" / "steps.parquet").to_pylist()
    shown = events.Scalars("train/loss")
    assert [event.value for event in shown] == pytest.approx([row["loss"] for row in steps], rel=1e-5)
    assert {"train/mfu", "train/texts_per_s", "step/forward_s", "dev/accuracy"} <= set(events.Tags()["scalars"])


def test_only_the_rows_of_tokens_in_use_have_changed(trained: Path) -> None:
    before = AutoModelForSequenceClassification.from_pretrained(trained / "start").get_input_embeddings().weight
    after = AutoModelForSequenceClassification.from_pretrained(trained / "teacher").get_input_embeddings().weight
    assert before.shape == after.shape
    changed = (before != after).any(dim=1)
    assert changed.sum() > 20
    assert not changed[1]  # [UNK] occurs in no text


def test_the_student_is_made_of_the_named_layers(trained: Path, tiny_dataset: Path) -> None:
    record = load_as(TrainingRun, trained / "student" / "record.json")
    assert record.initialised_from == "teacher layers [0, 2]"
    assert record.parents["teacher"] == file_sha256(trained / "teacher" / "model.safetensors")
    assert record.parents["dataset"] == file_sha256(tiny_dataset / "record.json")
    assert "teach" in record.phases


def test_a_slow_storage_is_reported_as_waiting(tmp_path: Path, tiny_dataset: Path) -> None:
    config = config_for(
        write_checkpoint(tmp_path / "start"), teacher=TeacherConfig(model=str(tmp_path / "start"), epochs=1)
    )
    run = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "slow", slow_storage_s=0.02)
    split = run.step_split
    assert split.data_wait_s >= 0.02 * split.num_steps
    waiting = [row["data_wait_s"] for row in pq.read_table(tmp_path / "slow" / "steps.parquet").to_pylist()]
    assert min(waiting) >= 0.02


def test_worker_processes_read_ahead_of_a_slow_storage(tmp_path: Path, tiny_dataset: Path) -> None:
    teacher = TeacherConfig(model=str(write_checkpoint(tmp_path / "start")), epochs=1)
    losses, waits = [], []
    for workers in (0, 2):
        folder = tmp_path / f"workers-{workers}"
        config = config_for(tmp_path / "start", teacher=teacher, data_workers=workers)
        train_teacher(config, dataset=tiny_dataset, folder=folder, slow_storage_s=0.04)
        steps = pq.read_table(folder / "steps.parquet")
        losses.append(steps.column("loss").to_pylist())
        # The first step's wait holds the start of the processes, which takes as long as the machine is busy.
        waits.append(sum(steps.column("data_wait_s").to_pylist()[1:]))
    assert waits[1] < 0.8 * waits[0]
    assert losses[0] == losses[1]


def test_long_texts_are_cut_and_counted(tmp_path: Path, tiny_dataset: Path) -> None:
    teacher = TeacherConfig(model=str(write_checkpoint(tmp_path / "start")), epochs=1)
    config = TrainConfig(max_length=8, token_budget=256, precision="fp32", teacher=teacher)
    run = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "cut")
    tokenizer = TextTokenizer(tmp_path / "start" / "tokenizer.json", max_length=64)
    lengths = [len(ids) for ids in tokenizer.encode_batch(read_split(tiny_dataset, "train").texts)]
    assert run.num_truncated == sum(length > 8 for length in lengths) > 0
    assert run.num_tokens == sum(min(length, 8) for length in lengths)
    saved = json.loads((tmp_path / "cut" / "tokenizer.json").read_text())
    assert saved["padding"] is None
    assert saved["truncation"]["max_length"] == 8


def test_tf32_is_a_matter_of_gpus_and_recorded_as_off_on_a_cpu(tmp_path: Path, tiny_dataset: Path) -> None:
    teacher = TeacherConfig(model=str(write_checkpoint(tmp_path / "start", num_layers=1)), epochs=1)
    config = config_for(tmp_path / "start", teacher=teacher, tf32=True, token_budget=1024)
    run = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert run.switches["tf32"] is torch.cuda.is_available()


def test_a_teacher_of_other_labels_is_refused(tmp_path: Path, tiny_dataset: Path) -> None:
    other = write_checkpoint(tmp_path / "other", labels=("left", "middle", "right"))
    with pytest.raises(UserError, match="its labels are left, middle, right, the data set's are animal, city, number"):
        train_student(config_for(other), dataset=tiny_dataset, teacher=other, folder=tmp_path / "student")


def test_a_layer_that_the_teacher_lacks_is_refused(tmp_path: Path, tiny_dataset: Path) -> None:
    teacher = write_checkpoint(tmp_path / "teacher", num_layers=2)
    with pytest.raises(UserError, match=r"names layer 2, the teacher has 2 \(0 to 1\)"):
        train_student(config_for(teacher), dataset=tiny_dataset, teacher=teacher, folder=tmp_path / "student")


def test_what_cannot_fit_is_refused_before_training(
    tmp_path: Path, tiny_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.ledger.memory_bytes", lambda: 100_000_000)
    config = config_for(write_checkpoint(tmp_path / "start"))
    with pytest.raises(UserError, match=r"the training needs about \d+\.\d+ GB .* and 0\.10 GB are there; help: "):
        train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert not (tmp_path / "teacher").exists()


def record_rows(dataset: Path, split: str) -> int:
    return read_record(dataset).splits[split].num_rows
