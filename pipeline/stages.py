"""The order of the stages, what each reads and makes, and running those that are not up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from pipeline.doctor import runnable_profiles
from pipeline.experiment import Experiment, save_resolved
from pipeline.freshness import inputs_sha256, is_fresh, outputs_sha256, source_sha256, write_stamp
from pipeline.lock import locked
from report.prices import SHIPPED
from testbed.errors import UserError
from testbed.folders import clear_leftovers
from testbed.progress import Stages, say
from testbed.records import TrainingRun

STAMPS = ".stages"


@dataclass(frozen=True)
class Run:
    """One experiment and the folder that its stages fill.

    Attributes:
        experiment: what to do.
        folder: where its results go.
        num_processes: that train together on this machine.
    """

    experiment: Experiment
    folder: Path
    num_processes: int = 1

    @property
    def profiles(self) -> tuple[str, ...]:
        """The profiles to load-test: those named, or every one that this machine can run."""
        named = self.experiment.serve.profiles
        return runnable_profiles() if named == "auto" else named


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    Attributes:
        name: as the command line names it.
        sections: the sections of the experiment file that it depends on.
        ignores: fields of those sections that it does not read.
        parents: stages whose outputs it reads.
        outputs: patterns of the files, relative to the run's folder, whose hashes stand for its result.
        work: does it.
    """

    name: str
    sections: tuple[str, ...]
    parents: tuple[str, ...]
    outputs: tuple[str, ...]
    work: Callable[[Run], object]
    ignores: tuple[str, ...] = ()

    def inputs(self, run: Run) -> str:
        """Return the hash of everything the stage depends on."""
        dumped = run.experiment.model_dump(
            mode="json", exclude={section: set(self.ignores) for section in self.sections if self.ignores}
        )
        config: dict[str, JsonValue] = {section: dumped[section] for section in ("name", *self.sections)}
        if self.name == "loadtests":
            config["profiles"] = list(run.profiles)
        parents = {name: outputs_sha256(run.folder, BY_NAME[name].outputs) for name in self.parents}
        return inputs_sha256(config, parents | self._own_files(run.experiment))

    def _own_files(self, experiment: Experiment) -> dict[str, str | None]:
        own = experiment.report.prices
        sources: dict[str, tuple[str | None, ...]] = {
            "dataset": (experiment.dataset.source if experiment.dataset.is_file() else None,),
            "teacher": (experiment.train.teacher.model,),
            "student": (experiment.train.student.model,),
            "report": (str(SHIPPED), str(own) if own else None),
        }
        return {source: source_sha256(source) for source in sources.get(self.name, ()) if source is not None}


def _dataset(run: Run) -> object:
    from testbed.dataset import prepare

    return prepare(run.experiment.dataset, run.folder / "dataset")


def _teacher(run: Run) -> object:
    return train(run, "teacher", run.folder / "teacher")


def _student(run: Run) -> object:
    return train(run, "student", run.folder / "student")


def train(run: Run, model: Literal["teacher", "student"], folder: Path, *, slow_storage_s: float = 0.0) -> TrainingRun:
    """Train a model into a folder, in one process or several; ``slow_storage_s`` is a fault to inject."""
    dataset, teacher = run.folder / "dataset", run.folder / "teacher"
    if run.num_processes > 1:
        from train.launch import launch

        return launch(
            model,
            run.experiment.train,
            num_processes=run.num_processes,
            dataset=dataset,
            folder=folder,
            teacher=teacher if model == "student" else None,
            slow_storage_s=slow_storage_s,
        )
    if model == "teacher":
        from train.teacher import train_teacher

        return train_teacher(run.experiment.train, dataset=dataset, folder=folder, slow_storage_s=slow_storage_s)
    from train.student import train_student

    return train_student(
        run.experiment.train, dataset=dataset, teacher=teacher, folder=folder, slow_storage_s=slow_storage_s
    )


def _quantize(run: Run) -> object:
    from quantize.build import build_bundle

    return build_bundle(
        run.experiment.quantize,
        name=run.experiment.name,
        dataset=run.folder / "dataset",
        checkpoints={"teacher": run.folder / "teacher", "student": run.folder / "student"},
        folder=run.folder / "bundle",
    )


def _loadtests(run: Run) -> object:
    from loadtests.suite import run_suite

    return run_suite(
        run.experiment.loadtests, bundle=run.folder / "bundle", profiles=run.profiles, folder=run.folder / "loads"
    )


def _report(run: Run) -> object:
    from report.build import build_report

    return build_report(run.experiment.report, run=run.folder)


STAGES = (
    Stage("dataset", ("dataset",), (), ("dataset/*.json*",), _dataset),
    Stage(
        "teacher",
        ("train",),
        ("dataset",),
        ("teacher/record.json", "teacher/model.safetensors"),
        _teacher,
        ignores=("student",),
    ),
    Stage(
        "student", ("train",), ("dataset", "teacher"), ("student/record.json", "student/model.safetensors"), _student
    ),
    Stage("quantize", ("quantize",), ("dataset", "teacher", "student"), ("bundle/manifest.json",), _quantize),
    Stage("loadtests", ("loadtests",), ("quantize",), ("loads/*.json", "loads/*.parquet"), _loadtests),
    Stage(
        "report",
        ("report",),
        ("dataset", "teacher", "student", "quantize", "loadtests"),
        ("report/report.json", "report/index.html", "report/report.md"),
        _report,
    ),
)
BY_NAME = {stage.name: stage for stage in STAGES}


def stages_until(last: str) -> tuple[Stage, ...]:
    """Return the stages up to and with ``last``; raises UserError for a name that is no stage."""
    if last not in BY_NAME:
        msg = f"no stage {last!r}; help: one of {', '.join(BY_NAME)}"
        raise UserError(msg)
    names = list(BY_NAME)
    return STAGES[: names.index(last) + 1]


def run_stages(run: Run, stages: Sequence[Stage], *, force: frozenset[str] = frozenset()) -> list[str]:
    """Run the stages in order, skipping those that are up to date; return the names of those that ran.

    Raises:
        UserError: another process works in the folder, a profile cannot run here, or a stage's own.
    """
    ran: list[str] = []
    with locked(run.folder), Stages(tuple(stage.name for stage in stages)) as board:
        clear_leftovers(run.folder)
        _check_profiles(run, stages)
        save_resolved(run.experiment, run.folder)
        for stage in stages:
            inputs = stage.inputs(run)
            if stage.name not in force and _is_done(run, stage, inputs):
                board.set(stage.name, "up to date, skipped")
                continue
            board.set(stage.name, "running")
            begin_s = time.monotonic()
            try:
                stage.work(run)
            except KeyboardInterrupt:
                say(f"{run.folder}: stopped in stage {stage.name}; the same command goes on from what is finished")
                raise
            _stamp(run, stage, inputs)
            board.set(stage.name, f"done in {time.monotonic() - begin_s:.1f} s")
            ran.append(stage.name)
    return ran


def _check_profiles(run: Run, stages: Sequence[Stage]) -> None:
    """Refuse before the first stage, not after an hour of training, a profile that this machine cannot load-test."""
    loadtests = BY_NAME["loadtests"]
    missing = sorted(set(run.profiles) - set(runnable_profiles()))
    if missing and loadtests in stages and not _is_done(run, loadtests, loadtests.inputs(run)):
        msg = (
            f"serve.profiles: {', '.join(missing)} cannot run on this machine; help: `breakeven doctor` says why; "
            "name others, or stop before the load tests with --until quantize"
        )
        raise UserError(msg)


def _is_done(run: Run, stage: Stage, inputs: str) -> bool:
    stamp = run.folder / STAMPS / f"{stage.name}.json"
    return is_fresh(stamp, inputs=inputs, outputs=outputs_sha256(run.folder, stage.outputs))


def _stamp(run: Run, stage: Stage, inputs: str) -> None:
    outputs = outputs_sha256(run.folder, stage.outputs)
    assert outputs is not None, f"stage {stage.name} left no {stage.outputs}"
    write_stamp(run.folder / STAMPS / f"{stage.name}.json", inputs=inputs, outputs=outputs)
