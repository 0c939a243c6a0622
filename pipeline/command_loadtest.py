"""The subcommands of ``breakeven loadtest``, with exit statuses that a script can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from loadtests.config import LoadTestConfig
from pipeline.command_stages import ExperimentFile, Force, RunsFolder, run_one
from pipeline.experiment import load_experiment
from pipeline.load_tables import print_finding, print_judges, print_overload, print_sweep
from testbed.errors import UserError
from testbed.progress import say

COULD_NOT_RUN = 3


class OneLoadTest(TyperCommand):
    """A command whose mistyped options exit as a load test that could not run: status 2 says INVALID."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its class is private to typer
        """Parse, and give a usage error the status of a load test that could not run."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "exit_code") and error.exit_code:
                error.exit_code = COULD_NOT_RUN
            raise


class Guessing(TyperGroup):
    """Takes what is no subcommand as ``server`` where it names a URL, and as ``experiment`` otherwise."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its class is private to typer
        """Put the subcommand before arguments that begin with none."""
        if args and args[0] not in self.commands and args[0] != "--help":
            names_url = any(word.split("=")[0] == "--url" for word in args)
            args = ["server" if names_url else "experiment", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Guessing,
    no_args_is_help=True,
    help="Load-test the variants of a bundle (EXPERIMENT.yaml), or any server (--url URL).",
)

Bundle = Annotated[Path, typer.Argument(help="bundle folder, such as runs/trec/bundle")]
Variant = Annotated[str, typer.Option(help="variant of the bundle")]
Profile = Annotated[str, typer.Option(help="cpu, edge or gpu")]
Out = Annotated[Path, typer.Option(help="folder that gets records, raw rows and logs")]
Duration = Annotated[float, typer.Option(help="seconds of each run")]
Peak = Annotated[float | None, typer.Option(help="queries a second that count as the peak  [default: measured]")]
Slo = Annotated[float, typer.Option(help="p99 objective from the scheduled time, ms")]


@app.command(cls=OneLoadTest)
def experiment(experiment: ExperimentFile, runs: RunsFolder = Path("runs"), force: Force = False) -> None:
    """Load-test every variant of an experiment's bundle on its profiles."""
    with could_not_run():
        run_one(experiment, "loadtests", runs=runs, force=force)


@app.command(cls=OneLoadTest)
def server(
    *,
    url: Annotated[str, typer.Option(help="scheme, host and port of a server that is up")],
    texts: Annotated[Path, typer.Option(help="queries: JSONL, CSV or plain text, one each")],
    model: Annotated[str, typer.Option(help="model name in the Open Inference Protocol's path")] = "model",
    protocol: Annotated[str, typer.Option(help="oip, hf or template")] = "oip",
    template: Annotated[Path | None, typer.Option(help="YAML that describes any other server's request")] = None,
    rate: Annotated[float | None, typer.Option(help="offered load, queries/s  [default: search for the most]")] = None,
    duration: Duration = 10.0,
    slo_ms: Slo = 50.0,
    config: Annotated[Path | None, typer.Option(help="experiment file whose section loadtests applies")] = None,
    processes: Annotated[int, typer.Option(help="processes of the load generator")] = 1,
    baseline: Annotated[Path | None, typer.Option(help="earlier record; a significant regression exits 1")] = None,
    out: Out = Path("runs/loadtest"),
) -> None:
    """Load-test any server. Exit status: 0 the SLO holds, 1 it does not, 2 INVALID, 3 could not run."""
    from loadtests.external import load_test
    from loadtests.server import Target

    with could_not_run():
        if protocol not in {"oip", "hf", "template"} or (protocol == "template") != (template is not None):
            msg = f"--protocol {protocol}, --template {template}; help: oip, hf, or template with its --template FILE"
            raise UserError(msg)
        section = load_experiment(config).loadtests if config else LoadTestConfig(slo_s=slo_ms / 1e3)
        target = Target(url.rstrip("/"), "external", "external", model, protocol=protocol, template=template)  # type: ignore[arg-type] # checked above
        found = load_test(
            section,
            target,
            texts_file=texts,
            folder=out,
            rate_qps=rate,
            duration_s=duration,
            processes=processes,
            baseline=baseline,
        )
    print_finding(found.result, found.ratios, found.verdict.name)
    raise typer.Exit(int(found.verdict))


@app.command(cls=OneLoadTest)
def judge(
    bundle: Bundle,
    variant: Variant = "student-int8",
    profile: Profile = "cpu",
    out: Out = Path("runs/judges"),
    duration: Duration = 15.0,
    peak: Peak = None,
    slo_ms: Slo = 50.0,
) -> None:
    """Let an open loop, a closed loop and MLPerf's LoadGen (unofficial) judge one server, side by side."""
    from loadtests.trials import judge_bundle

    section = LoadTestConfig(slo_s=slo_ms / 1e3)
    with could_not_run():
        report = judge_bundle(
            section, bundle=bundle, variant=variant, profile=profile, folder=out, duration_s=duration, peak_qps=peak
        )
    print_judges(report)


@app.command(cls=OneLoadTest)
def overload(
    bundle: Bundle,
    variant: Variant = "student-int8",
    profile: Profile = "cpu",
    out: Out = Path("runs/overload"),
    duration: Duration = 5.0,
    peak: Peak = None,
    slo_ms: Slo = 50.0,
) -> None:
    """Offer one variant 0.5 to 3 times its peak: goodput, what was refused and why, and the time to recover."""
    from loadtests.trials import overload_bundle

    section = LoadTestConfig(slo_s=slo_ms / 1e3)
    with could_not_run():
        report = overload_bundle(
            section, bundle=bundle, variant=variant, profile=profile, folder=out, duration_s=duration, peak_qps=peak
        )
    print_overload(report)


@app.command(cls=OneLoadTest)
def sweep(
    bundle: Bundle,
    variant: Variant = "student-int8",
    profile: Profile = "cpu",
    out: Out = Path("runs/sweep"),
    duration: Duration = 5.0,
    peak: Peak = None,
    slo_ms: Slo = 50.0,
) -> None:
    """Offer one variant the same loads under every batching policy, and fit the time of a batch."""
    from loadtests.trials import sweep_bundle

    section = LoadTestConfig(slo_s=slo_ms / 1e3)
    with could_not_run():
        report = sweep_bundle(
            section, bundle=bundle, variant=variant, profile=profile, folder=out, duration_s=duration, peak_qps=peak
        )
    print_sweep(report)


@contextmanager
def could_not_run() -> Iterator[None]:
    """Give a user's mistake the status of a load test that could not run."""
    try:
        yield
    except UserError as error:
        say(f"error: {error}")
        raise typer.Exit(COULD_NOT_RUN) from error
