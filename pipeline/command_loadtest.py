"""The subcommands of ``breakeven loadtest``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from pipeline.command_stages import ExperimentFile, Force, RunsFolder, run_one


class RunByDefault(TyperGroup):
    """Takes what is no subcommand as the arguments of ``run``: ``loadtest EXPERIMENT.yaml`` works."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its class is private to typer
        """Put ``run`` before arguments that begin with no subcommand."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=RunByDefault, no_args_is_help=True, help="Load-test the variants of a bundle, or any server.")


@app.command()
def run(experiment: ExperimentFile, runs: RunsFolder = Path("runs"), force: Force = False) -> None:
    """Load-test every variant of an experiment's bundle on its profiles."""
    run_one(experiment, "loadtests", runs=runs, force=force)
