"""Nothing is lost: kills at any moment, SIGTERM, a NaN, a full disk, a damaged checkpoint."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from testbed.errors import UserError
from testbed.records import TrainingRun, file_sha256, load_as
from tests.tiny import write_checkpoint
from train import checkpoint
from train.config import TeacherConfig, TrainConfig
from train.objective import LabelLoss
from train.precision import Precision
from train.stage import Stage
from train.stopping import StoppedError
from train.teacher import train_teacher

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
TIMES = {"wall_s", "other_s", "data_wait_s", "copy_s", "forward_s", "backward_s", "sync_s", "optimizer_s"}


def config_for(model: Path) -> TrainConfig:
    return TrainConfig(
        max_length=32,
        token_budget=512,
        precision="fp32",
        checkpoint_every_steps=3,
        teacher=TeacherConfig(model=str(model), epochs=2, learning_rate=5e-3),
    )


@pytest.fixture(autouse=True)
def _few_event_files() -> Iterator[None]:
    """TensorBoard reads one process's files of one second in the order of their names: the tenth before the ninth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_dataset: Path) -> Path:
    """A run that nothing interrupted; its start is in ``start``, its checkpoint in ``teacher``."""
    folder = tmp_path_factory.mktemp("whole")
    train_teacher(config_for(write_checkpoint(folder / "start")), dataset=tiny_dataset, folder=folder / "teacher")
    return folder


def assert_same_training(folder: Path, whole: Path) -> None:
    """The weights, the test logits and every step's figures are equal, bit for bit; times are not compared."""
    for name in ("model.safetensors", "test_logits.npy"):
        assert file_sha256(folder / name) == file_sha256(whole / "teacher" / name)
    steps, expected = (
        [
            {key: value for key, value in row.items() if key not in TIMES}
            for row in pq.read_table(path / "steps.parquet").to_pylist()
        ]
        for path in (folder, whole / "teacher")
    )
    assert steps == expected
    record = load_as(TrainingRun, folder / "record.json")
    assert len(record.epochs) == 2
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [row["step"] for row in steps]
    assert not list(folder.parent.glob(".*"))


def write_section(path: Path, config: TrainConfig) -> Path:
    path.write_text(config.model_dump_json(), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())}


def test_kills_at_random_steps_and_inside_saves_change_no_bit(tmp_path: Path, tiny_dataset: Path, whole: Path) -> None:
    total = load_as(TrainingRun, whole / "teacher" / "record.json").num_steps
    draw = random.Random()
    # Three steps apart, so that what a killed save may have left, a checkpoint every three, is not past the next one.
    steps = [step + 2 * place for place, step in enumerate(sorted(draw.sample(range(1, total - 4), 3)))]
    # A save flushes its three files, its folder, and the parent's entry; sync:1 to sync:4 are before its rename.
    moments = ["sync:1", f"step:{steps[0]}", f"sync:{draw.randint(1, 5)}", f"step:{steps[1]}"]
    moments += [f"sync:{draw.randint(1, 5)}", f"step:{steps[2]}"]
    section = write_section(tmp_path / "train.json", config_for(whole / "start"))
    command = [sys.executable, str(ROOT / "tests" / "killed_training.py"), str(section), str(tiny_dataset)]
    result = subprocess.run(
        [*command, str(tmp_path / "teacher"), *moments, "none"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    ends = [line.split() for line in result.stdout.splitlines()]
    assert ends == [*([moment, "SIGKILL"] for moment in moments), ["none", "0"]], result.stderr
    assert "going on after step" in result.stderr
    assert_same_training(tmp_path / "teacher", whole)


def test_sigterm_saves_and_says_how_to_go_on(tmp_path: Path, tiny_dataset: Path, whole: Path) -> None:
    # With processes that read, and sent to all of them, as a service manager does.
    config = config_for(whole / "start").model_copy(update={"data_workers": 2})
    section = write_section(tmp_path / "train.json", config)
    command = [sys.executable, "-m", "train", "teacher", str(section), "--dataset", str(tiny_dataset)]
    process = subprocess.Popen(
        # slow enough that it cannot end before the signal arrives
        [*command, "--folder", str(tmp_path / "teacher"), "--slow-storage-s", "0.2"],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: list(tmp_path.glob(".teacher.training/*/checkpoints/checkpoint-*")), process)
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped by SIGTERM after step" in said
    assert "a checkpoint was saved; help: run the same command again" in said
    assert "Traceback" not in said
    assert not (tmp_path / "teacher").exists()
    train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert_same_training(tmp_path / "teacher", whole)


def test_sigterm_while_the_dev_split_is_evaluated_stops_after_the_next_step(
    tmp_path: Path, tiny_dataset: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Stage.evaluate_dev

    def interrupted(self: Stage, precision: Precision) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(self, precision)

    monkeypatch.setattr(Stage, "evaluate_dev", interrupted)
    with pytest.raises(StoppedError, match="stopped by SIGTERM after step"):
        train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    monkeypatch.undo()
    run = train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert run.resumed_from_step == run.num_steps // 2 + 1
    assert_same_training(tmp_path / "teacher", whole)


def test_a_nan_stops_names_the_batch_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, tiny_dataset: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_step(monkeypatch, 5, lambda loss: loss * float("nan"))
    with pytest.raises(
        UserError,
        match=r"the loss is nan at step 5, batch 5 of epoch 0: the texts in lines [\d, ]+ of "
        r"train.jsonl; last good checkpoint: checkpoint-00000003; help: lower learning_rate",
    ):
        train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    monkeypatch.undo()
    run = train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert run.resumed_from_step == 3
    assert_same_training(tmp_path / "teacher", whole)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_types_go_on_to_the_same_bits(
    tmp_path: Path, tiny_dataset: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    # bf16 has FP32 weights beside the working ones, fp16 a loss scale that changes on the way.
    config = config_for(whole / "start").model_copy(update={"precision": precision})
    train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "teacher")
    fail_at_step(monkeypatch, 5, lambda loss: loss * float("nan"))
    with pytest.raises(UserError, match="the loss is nan at step 5"):
        train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "resumed")
    monkeypatch.undo()
    run = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "resumed")
    assert run.resumed_from_step == 3
    assert_same_training(tmp_path / "resumed", tmp_path)


def test_a_full_disk_is_said_and_the_last_checkpoint_stays_whole(
    tmp_path: Path, tiny_dataset: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save
    saves = []

    def full_at_the_second(state: object, path: Path) -> None:
        saves.append(path)
        save(state, path)
        if len(saves) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(checkpoint.torch, "save", full_at_the_second)
    with pytest.raises(
        UserError, match=r"no space left on the disk \(checkpoint-00000003 is whole\); help: free space"
    ):
        train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    (checkpoints,) = tmp_path.glob(".teacher.training/*/checkpoints")
    assert sorted(path.name for path in checkpoints.glob("*checkpoint*")) == ["checkpoint-00000003"]
    monkeypatch.undo()
    train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert_same_training(tmp_path / "teacher", whole)


def test_a_damaged_checkpoint_is_refused_and_the_one_before_serves(
    tmp_path: Path, tiny_dataset: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_step(monkeypatch, 8, lambda loss: loss * float("inf"))
    with pytest.raises(UserError, match="the loss is inf at step 8"):
        train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    monkeypatch.undo()
    (newest,) = tmp_path.glob(".teacher.training/*/checkpoints/checkpoint-00000006")
    state = bytearray((newest / "state.pt").read_bytes())
    state[len(state) // 2] ^= 1
    (newest / "state.pt").write_bytes(state)
    with pytest.raises(
        UserError,
        match=r"state.pt is not the file that was saved: damaged; help: remove that folder to "
        r"go on from checkpoint-00000003",
    ):
        train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    for path in newest.iterdir():
        path.unlink()
    newest.rmdir()
    run = train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert run.resumed_from_step == 3
    assert_same_training(tmp_path / "teacher", whole)


def test_another_configuration_starts_again(
    tmp_path: Path, tiny_dataset: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_step(monkeypatch, 5, lambda loss: loss * float("nan"))
    other = config_for(whole / "start").model_copy(update={"seed": 1})
    with pytest.raises(UserError, match="the loss is nan"):
        train_teacher(other, dataset=tiny_dataset, folder=tmp_path / "teacher")
    monkeypatch.undo()
    run = train_teacher(config_for(whole / "start"), dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert run.resumed_from_step is None
    assert_same_training(tmp_path / "teacher", whole)


def fail_at_step(monkeypatch: pytest.MonkeyPatch, step: int, spoil: object) -> None:
    call = LabelLoss.__call__
    calls = []

    def spoilt(self: LabelLoss, model: object, batch: object) -> torch.Tensor:
        calls.append(batch)
        loss = call(self, model, batch)
        return spoil(loss) if len(calls) == step + 1 else loss

    monkeypatch.setattr(LabelLoss, "__call__", spoilt)


def wait_for(condition: object, process: subprocess.Popen[str], *, timeout_s: float = 90) -> None:
    """Look again and again (files give no event) until the condition holds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
