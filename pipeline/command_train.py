"""The subcommands of ``breakeven train``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pipeline.command_stages import ExperimentFile, Force, RunsFolder, run_one
from pipeline.stages import train
from testbed.errors import UserError
from testbed.records import StepSplit, TrainingRun, load_as

app = typer.Typer(no_args_is_help=True, help="Train a teacher or a student, or measure how training scales.")

Processes = Annotated[int, typer.Option("--nproc", help="processes that share each batch, through torchrun", min=1)]
Inject = Annotated[
    str | None, typer.Option(help="a fault, such as slow-storage=20ms: trains apart, and shows that it starves")
]


@app.command()
def teacher(
    experiment: ExperimentFile,
    runs: RunsFolder = Path("runs"),
    force: Force = False,
    nproc: Processes = 1,
    inject: Inject = None,
) -> None:
    """Fine-tune the teacher: checkpoint and record."""
    _train("teacher", experiment, runs, force=force, nproc=nproc, inject=inject)


@app.command()
def student(
    experiment: ExperimentFile,
    runs: RunsFolder = Path("runs"),
    force: Force = False,
    nproc: Processes = 1,
    inject: Inject = None,
) -> None:
    """Distil the student from the teacher: checkpoint and record."""
    _train("student", experiment, runs, force=force, nproc=nproc, inject=inject)


@app.command()
def scaling(
    experiment: ExperimentFile,
    runs: RunsFolder = Path("runs"),
    processes: Annotated[
        list[int] | None, typer.Option(help="number of processes; repeat it  [default: 1 and 2]")
    ] = None,
) -> None:
    """Train one epoch at 1, 2, … processes: throughput, share of time in synchronisation, efficiency."""
    from train.scaling import measure_scaling

    run = run_one(experiment, "dataset", runs=runs, force=False)
    counts = sorted(set(processes or (1, 2)))
    points = measure_scaling(run.experiment.train, dataset=run.folder / "dataset", num_processes=counts)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("processes", "threads\neach", "texts/s", "sync", "efficiency", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for point in points:
        table.add_row(
            f"{point.num_processes}",
            f"{point.threads}",
            f"{point.samples_per_s:.1f}",
            f"{point.sync_share:.1%}",
            f"{point.efficiency:.0%}",
            point.verdict,
        )
    Console().print(table)


def _train(
    model: Literal["teacher", "student"], experiment: Path, runs: Path, *, force: bool, nproc: int, inject: str | None
) -> None:
    if inject is None:
        run = run_one(experiment, model, runs=runs, force=force, num_processes=nproc)
        record = load_as(TrainingRun, run.folder / model / "record.json")
    else:
        delay_s = injected_delay_s(inject)
        parent = "dataset" if model == "teacher" else "teacher"
        run = run_one(experiment, parent, runs=runs, force=False, num_processes=nproc)
        record = train(run, model, run.folder / "injected" / model, slow_storage_s=delay_s)
    print_step(record)


def injected_delay_s(fault: str) -> float:
    """Return the seconds of ``slow-storage=20ms`` (or ``=0.02s``); raises UserError for anything else."""
    found = re.fullmatch(r"slow-storage=(\d+(?:\.\d+)?)(ms|s)", fault)
    if not found:
        msg = f"--inject {fault}: no such fault; help: slow-storage=20ms"
        raise UserError(msg)
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


def print_step(record: TrainingRun) -> None:
    """Print where a step's time went, and what the training reached."""
    split: StepSplit = record.step_split
    console = Console(highlight=False)
    console.print(
        f"{record.stage}: accuracy {record.accuracy.value:.4f}, {record.samples_per_s:.0f} texts/s, "
        f"{record.dtype}, MFU {record.mfu or 0:.0%}; of {split.num_steps} steps' {split.wall_s:.1f} s:"
    )
    for name in StepSplit.model_fields:
        if name not in {"num_steps", "wall_s"}:
            seconds = getattr(split, name)
            console.print(f"  {name.removesuffix('_s').replace('_', ' '):<10} {seconds / split.wall_s:6.1%}")
