"""The subcommands of ``breakeven train``."""

from __future__ import annotations

from pathlib import Path

import typer

from pipeline.command_stages import ExperimentFile, Force, RunsFolder, run_one

app = typer.Typer(no_args_is_help=True, help="Train a teacher or a student, or measure how training scales.")


@app.command()
def teacher(experiment: ExperimentFile, runs: RunsFolder = Path("runs"), force: Force = False) -> None:
    """Fine-tune the teacher: checkpoint and record."""
    run_one(experiment, "teacher", runs=runs, force=force)


@app.command()
def student(experiment: ExperimentFile, runs: RunsFolder = Path("runs"), force: Force = False) -> None:
    """Distil the student from the teacher: checkpoint and record."""
    run_one(experiment, "student", runs=runs, force=force)
