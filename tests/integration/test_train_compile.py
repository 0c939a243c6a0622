"""A compiled training gives the losses of an ordinary one, compiles before its first step, or is refused early."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch._dynamo import config as dynamo_config
from torch._inductor import config as inductor_config

from testbed.errors import UserError
from testbed.records import TrainingRun
from tests.tiny import write_checkpoint
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.launch import launch
from train.student import train_student
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


def config_for(start: Path, *, compiled: bool, precision: str = "fp32") -> TrainConfig:
    recipe = {"epochs": 1, "learning_rate": 2e-3}
    return TrainConfig(
        max_length=32,
        token_budget=512,
        precision=precision,
        compile=compiled,
        teacher=TeacherConfig(model=str(start), **recipe),
        student=StudentConfig(layers=(0,), **recipe),
    )


@pytest.fixture
def start(tmp_path: Path) -> Path:
    # A compiled model draws its dropout masks by another generator: only without dropout are its losses the same.
    return write_checkpoint(tmp_path / "start", num_layers=1, dropout=0.0)


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    torch._dynamo.reset()


def losses(folder: Path) -> np.ndarray:
    return pq.read_table(folder / "steps.parquet").column("loss").to_numpy()


def assert_compiled_before_the_steps(run: TrainingRun, folder: Path) -> None:
    assert run.switches["compile"] is True
    steps = pq.read_table(folder / "steps.parquet").to_pylist()
    assert sum(row["forward_s"] for row in steps) < 0.5 * run.phases["compile"].wall_s


def test_a_traced_training_gives_the_losses_of_an_ordinary_one(
    tmp_path: Path, tiny_dataset: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All but the code generation: one trace that holds for every batch's shape, forward and backward.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager", fullgraph=True))
    for compiled in (False, True):
        folder = tmp_path / f"compiled-{compiled}"
        with dynamo_config.patch(error_on_recompile=True):
            run = train_teacher(config_for(start, compiled=compiled), dataset=tiny_dataset, folder=folder)
        assert run.switches["compile"] is compiled
        assert ("compile" in run.phases) is compiled
    np.testing.assert_allclose(losses(tmp_path / "compiled-True"), losses(tmp_path / "compiled-False"), rtol=1e-4)


def test_without_a_compiler_it_is_refused_before_anything_is_read(
    tmp_path: Path, tiny_dataset: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    nowhere = inductor_config.patch({"cpp.cxx": (None, "no-such-compiler")})
    with (
        nowhere,
        pytest.raises(UserError, match=r"train.compile: .*No working C\+\+ compiler .*; help: install g\+\+, or set"),
    ):
        train_teacher(config_for(start, compiled=True), dataset=tiny_dataset, folder=tmp_path / "teacher")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["start"]


@pytest.mark.long
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_a_compiled_teacher_and_student_give_the_losses_of_ordinary_ones(
    tmp_path: Path, tiny_dataset: Path, start: Path, precision: str, tolerance: float
) -> None:
    for compiled in (False, True):
        config, folder = config_for(start, compiled=compiled, precision=precision), tmp_path / f"compiled-{compiled}"
        teacher = train_teacher(config, dataset=tiny_dataset, folder=folder / "teacher")
        # Both students have the same teacher, so that nothing but the compiler tells them apart.
        taught_by = tmp_path / "compiled-False" / "teacher"
        student = train_student(config, dataset=tiny_dataset, teacher=taught_by, folder=folder / "student")
        if compiled:
            assert_compiled_before_the_steps(teacher, folder / "teacher")
            assert_compiled_before_the_steps(student, folder / "student")
    for stage in ("teacher", "student"):
        ordinary, found = (losses(tmp_path / f"compiled-{compiled}" / stage) for compiled in (False, True))
        np.testing.assert_allclose(found, ordinary, rtol=tolerance)


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_train_a_compiled_model(tmp_path: Path, tiny_dataset: Path, start: Path, parallel: str) -> None:
    one = config_for(start, compiled=False)
    train_teacher(one, dataset=tiny_dataset, folder=tmp_path / "one")
    two = config_for(start, compiled=True).model_copy(update={"parallel": parallel})
    run = launch("teacher", two, num_processes=2, dataset=tiny_dataset, folder=tmp_path / "two")
    assert_compiled_before_the_steps(run, tmp_path / "two")
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-3, atol=1e-4)
