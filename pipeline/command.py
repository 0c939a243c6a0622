"""The command line ``breakeven``: every stage is a subcommand."""

from __future__ import annotations

import errno
import importlib.metadata
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from pipeline import command_edge, command_loadtest, command_report, command_stages, command_train
from pipeline.doctor import ceilings, diagnose
from pipeline.experiment import load_experiment
from pipeline.stages import BY_NAME, STAGES, Run, run_stages, stages_until
from pipeline.summary import print_summary
from serve.__main__ import serve
from testbed.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(command_stages.app)
app.add_typer(command_report.app)
app.add_typer(command_edge.app)
app.add_typer(command_train.app, name="train")
app.add_typer(command_loadtest.app, name="loadtest")
app.command()(serve)

TERMINATED = 128 + signal.SIGTERM
# What the disk refuses, not our code: permission, read-only, full, over quota, a file where a folder should be.
DISK = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST))

ExperimentFile = Annotated[Path, typer.Argument(help="experiment file, such as experiments/trec.yaml")]
RunsFolder = Annotated[Path, typer.Option(help="folder that holds one folder a run")]

UNITS = {"flops": "FLOP", "bytes": "B"}


def show_version(wanted: bool) -> None:
    """Print the version and end."""
    if wanted:
        typer.echo(f"breakeven {importlib.metadata.version('breakeven')}")
        raise typer.Exit


@app.callback()
def breakeven(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="print the version and end", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """What does this model cost to train, what does it cost to serve, and where do the two meet?"""


@app.command()
def run(
    experiment: ExperimentFile,
    runs: RunsFolder = Path("runs"),
    until: Annotated[str, typer.Option(help=f"last stage to run: {', '.join(BY_NAME)}")] = STAGES[-1].name,
    force: Annotated[list[str] | None, typer.Option(help="stage to run again though up to date; or 'all'")] = None,
) -> None:
    """Run every stage in order; one whose inputs have not changed is skipped, and says so."""
    config = load_experiment(experiment)
    stages = stages_until(until)
    forced = frozenset(BY_NAME if "all" in (force or ()) else force or ())
    if unknown := forced - set(BY_NAME):
        msg = f"no stage {', '.join(sorted(unknown))}; help: --force takes one of {', '.join(BY_NAME)}, or all"
        raise UserError(msg)
    one = Run(config, runs / config.name)
    ran = run_stages(one, stages, force=forced)
    if not ran:
        Console().print(f"{one.folder}: everything is up to date")
    if (one.folder / "report" / "report.json").is_file():
        print_summary(one.folder)


@app.command()
def doctor(
    runs: RunsFolder = Path("runs"),
    measure: Annotated[bool, typer.Option("--measure", help="measure its ceilings too (about 10 s)")] = False,
) -> None:
    """Say what this machine is and can do, and what is wrong with it; exits with status 1 where something is."""
    findings = diagnose(runs)
    table = Table(show_header=False, box=None)
    for finding in findings:
        table.add_row(finding.what, finding.fact, f"[bold]help: {finding.advice}[/bold]" if finding.advice else "")
    if measure:
        for rate in ceilings():
            threads = f"{rate.num_threads} thread{'s' if rate.num_threads > 1 else ''}"
            table.add_row(rate.what, f"{rate.per_s / 1e9:,.1f} G{UNITS[rate.unit]}/s, {threads}, {rate.how}", "")
    Console().print(table)
    problems = sum(1 for finding in findings if finding.advice)
    Console().print(f"{problems} thing(s) to mend" if problems else "nothing is wrong")
    raise typer.Exit(1 if problems else 0)


def main() -> None:
    """Run the command line; a user's mistake, or a disk that refuses, gives its message and status 1, no traceback.

    Ctrl-C ends it with status 130 (typer's doing), SIGTERM with 143, and both only after what was begun is put away:
    servers and generators are stopped, half-written folders removed.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        app()
    except UserError as error:
        refuse(str(error))
    except OSError as error:
        if error.errno not in DISK:
            raise
        refuse(f"{error.filename or 'the disk'}: {error.strerror}; help: make it writable, or name another folder")


def refuse(message: str) -> NoReturn:
    """Print why nothing more was done, and end with status 1."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {message}", markup=False)
    sys.exit(1)


if __name__ == "__main__":
    main()
