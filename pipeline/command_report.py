"""The subcommands about a finished run: its page, its fleet plan, its difference from another, its live page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.experiment import load_resolved
from pipeline.summary import print_plan, print_summary

RunFolder = Annotated[Path, typer.Argument(help="a run's folder, such as runs/trec")]

app = typer.Typer()


@app.command()
def report(run: RunFolder) -> None:
    """Write the verdict of a run: report/index.html, report.md and report.json."""
    from report.build import build_report

    build_report(load_resolved(run).report, run=run)
    print_summary(run)


@app.command()
def plan(
    run: RunFolder,
    traffic: Annotated[Path, typer.Option(help="CSV with a column qps and one of hour, minute, time_s")],
    variant: Annotated[str | None, typer.Option(help="what to serve  [default: the report's choice]")] = None,
    profile: Annotated[str | None, typer.Option(help="where to serve it  [default: the report's choice]")] = None,
    queries_per_day: Annotated[float | None, typer.Option(help="scale the curve to so many queries a day")] = None,
) -> None:
    """Plan the replicas for a traffic curve by simulation: report/plan.json and a table."""
    from report.fleet.plan import plan_fleet

    found = plan_fleet(
        load_resolved(run).report,
        run=run,
        traffic=traffic,
        variant=variant,
        profile=profile,
        queries_per_day=queries_per_day,
    )
    print_plan(found)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="a run's folder")],
    after: Annotated[Path, typer.Argument(help="another run's folder")],
) -> None:
    """Compare two runs, as Markdown: what changed, and whether it is more than their intervals."""
    from report.compare import render_comparison

    typer.echo(render_comparison(before, after), nl=False)


@app.command()
def dashboard(
    run: RunFolder,
    port: Annotated[int, typer.Option(help="TCP port on 127.0.0.1; 0 = any free one")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
) -> None:
    """Serve a run's page on this machine, and refresh it as stages end; Ctrl-C stops."""
    from report.dashboard import Dashboard

    with Dashboard(run, port=port) as server:
        Console().print(server.url, highlight=False)
        if browser:
            webbrowser.open(server.url)
        server.serve_forever()
