"""The subcommands that bring one stage of an experiment up to date, after the stages it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.experiment import load_experiment
from pipeline.stages import Run, run_stages, stages_until

ExperimentFile = Annotated[Path, typer.Argument(help="experiment file, such as experiments/trec.yaml")]
RunsFolder = Annotated[Path, typer.Option(help="folder that holds one folder a run")]
Force = Annotated[bool, typer.Option("--force", help="run it again though it is up to date")]

app = typer.Typer()


def run_one(experiment: Path, stage: str, *, runs: Path, force: bool) -> Run:
    """Bring a stage and those before it up to date, and say where it lies."""
    config = load_experiment(experiment)
    run = Run(config, runs / config.name)
    ran = run_stages(run, stages_until(stage), force=frozenset({stage} if force else ()))
    state = "written" if stage in ran else "up to date; --force makes it again"
    Console().print(f"{run.folder}: {stage} {state}", highlight=False)
    return run


@app.command()
def quantize(experiment: ExperimentFile, runs: RunsFolder = Path("runs"), force: Force = False) -> None:
    """Export both models, make the variants, verify each, and write the bundle."""
    run_one(experiment, "quantize", runs=runs, force=force)
