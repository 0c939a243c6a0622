"""This project's server and its peers under one harness: the same ONNX file, one core each, interleaved rounds.

    python benchmarks/serving/peers/make_peers.py
    python benchmarks/serving/compare.py rounds BUNDLE --rounds 3 --into results/…
    python benchmarks/serving/compare.py table --into results/…

A round measures every server once, and the limit without any server on the same core; the next one goes the other way
round, so that a drift of the machine favours none. ``rounds.json`` in the results folder is written after each server:
a run that was cut short goes on where it was. Raw rows and every run's record stay in ``--raw``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from compared import Comparison, InProcess, Peak, Round, Run, Served, as_markdown
from contenders import PEERS, Contender, contenders, started
from server_side import in_process as packed_in_process

from loadtests import capacity
from loadtests.config import LoadTestConfig
from loadtests.cores import pinned
from loadtests.measure import Bench
from loadtests.server import Target
from loadtests.suite import bundle_bench
from testbed.bundle import Bundle
from testbed.errors import UserError
from testbed.progress import say
from testbed.records import LoadTestRun, write_atomically

SINGLE_S, SATURATED_S, SETTLE_S, EQUAL_S = 1.5, 3.0, 2.0, 8.0
USERS = (32, 64)
# The search starts below the saturated rate (or at the last round's peak) and takes small steps from there.
START_SHARE, SEARCH_GROWTH = 0.85, 1.15
PACKED_SIZES = [1, 4, 8, 12, 16]
CONFIG = LoadTestConfig(
    idle_s=0.3,
    probe_s=1.5,
    max_probes=12,
    resolution=0.02,
    confirm_s=4.0,
    confirm_max_s=20.0,
    query_timeout_s=5.0,
)
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


def measure(bench: Bench, target: Target, *, equal_qps: float, last_peak_qps: float | None) -> Served:
    """Measure one server: saturated (which warms it up, too), then one query at a time, at the equal load, its peak."""
    saturated = {
        str(users): bench.run(target, scenario="ClosedLoop", duration_s=SATURATED_S, purpose="saturated", users=users)
        for users in USERS
    }
    # An adaptive batcher learns from what came last; what saturation taught it is no part of the figures that follow.
    bench.run(target, scenario="Server", duration_s=SETTLE_S, purpose="settle", rate_qps=equal_qps)
    single = bench.run(target, scenario="SingleStream", duration_s=SINGLE_S, purpose="single")
    equal = bench.run(target, scenario="Server", duration_s=EQUAL_S, purpose="equal load", rate_qps=equal_qps)
    most_qps = max(told(run).rate_qps for run in saturated.values())
    found = capacity.find(bench, target, start_qps=last_peak_qps or START_SHARE * most_qps, growth=SEARCH_GROWTH)
    passed = [probe.target_qps for probe in found.probes if probe.valid and probe.meets_slo]
    return Served(
        saturated={users: told(run) for users, run in saturated.items()},
        single=told(single),
        equal=told(equal),
        peak=Peak(
            confirmed_qps=found.max_qps,
            probed_qps=max(passed, default=None),
            reason=found.reason,
            run=None if found.confirmation is None else told(found.confirmation),
        ),
    )


def told(run: LoadTestRun) -> Run:
    """Return what the comparison keeps of a run."""
    quantiles = {} if run.latency is None else run.latency.quantiles
    loaded = None if run.server is None else run.server.loaded
    return Run(
        rate_qps=run.achieved_qps * run.num_ok / run.num_sent if run.target_qps is None else run.achieved_qps,
        num_ok=run.num_ok,
        num_errors=sum(run.errors.values()),
        p50_s=quantiles["p50"].value_s if quantiles else None,
        p99_s=quantiles["p99"].value_s if quantiles else None,
        cpu_s_per_query=loaded.cpu_s / run.num_ok if loaded and run.num_ok else None,
        peak_rss_bytes=None if loaded is None else loaded.peak_rss_bytes,
        other_cpu=run.other_cpu,
        failed_checks=tuple(check.name for check in run.checks if not check.passed),
        rows_sha256=run.rows_sha256,
    )


def in_process(bundle: Bundle, variant: str, environments: Path) -> InProcess:
    """Return texts a second without any server, on the servers' core: the peers' classifier, and our packed engine."""
    python = environments / "fastapi" / "bin" / "python"
    program = [str(python if python.exists() else sys.executable), str(PEERS.parent / "in_process.py")]
    texts = bundle.folder.parent / "dataset" / "test.jsonl"
    with pinned((min(os.sched_getaffinity(0)),)):
        done = subprocess.run(
            [*program, str(bundle.folder), variant, str(texts)], capture_output=True, text=True, check=True
        )
    packed = packed_in_process(bundle.folder.resolve(), variant, texts.resolve(), PACKED_SIZES)
    return InProcess(padded=json.loads(done.stdout), packed=packed)


def one_round(
    bench: Bench,
    bundle: Bundle,
    so_far: Comparison,
    number: int,
    taking_part: Sequence[Contender],
    into: Path,
    environments: Path,
) -> Comparison:
    """Measure what is missing of one round, and write the comparison after each server."""
    core = min(os.sched_getaffinity(0))
    begun = so_far.round(number) or Round(number=number, in_process=in_process(bundle, so_far.variant, environments))
    for contender in taking_part if number % 2 else reversed(taking_part):
        if contender.name in begun.servers:
            continue
        try:
            with started(contender, bench, bundle, so_far.variant, core) as target:
                last = so_far.last_peak_qps(contender.name)
                found = measure(bench, target, equal_qps=so_far.equal_qps, last_peak_qps=last)
            say(f"round {number}, {contender.name}: {found.peak.words}")
            begun = begun.with_server(contender.name, found)
        except UserError as error:
            say(f"round {number}, {contender.name}: {error}")
            begun = begun.with_absence(contender.name, str(error).splitlines()[0])
        so_far = so_far.with_round(begun)
        save(so_far, into)
    return so_far


@app.command()
def rounds(
    *,
    bundle: Annotated[Path, typer.Argument(help="bundle folder")],
    into: Annotated[Path, typer.Option(help="results folder: gets rounds.json and figures.md")],
    variant: Annotated[str, typer.Option(help="variant that all of them serve")] = "student-int8",
    rounds: Annotated[int, typer.Option(help="rounds in all; those that rounds.json holds are not made again")] = 3,
    raw: Annotated[Path, typer.Option(help="folder of records, raw rows and logs")] = Path("runs/serving-peers"),
    environments: Annotated[Path, typer.Option(help="where make_peers.py put them")] = Path(".cache/peers"),
    equal_qps: Annotated[float, typer.Option(help="load at which all are compared, queries/s")] = 50.0,
    slo_ms: Annotated[float, typer.Option(help="p99 objective, ms")] = 50.0,
    only: Annotated[list[str] | None, typer.Option(help="names of the contenders, all unless given")] = None,
) -> None:
    """Measure every contender once a round."""
    opened = Bundle(bundle)
    taking_part = [each for each in contenders(environments) if not only or each.name in only]
    config = CONFIG.model_copy(update={"slo_s": slo_ms / 1e3})
    for number in range(1, rounds + 1):
        folder = raw / f"round-{number}"
        with bundle_bench(config, opened, folder, logs=folder) as bench:
            so_far = read(into) or Comparison(
                **bench.provenance(), variant=variant, slo_s=config.slo_s, equal_qps=equal_qps
            )
            one_round(bench, opened, so_far, number, taking_part, into, environments)
    table(into)


@app.command()
def table(into: Annotated[Path, typer.Option(help="results folder")]) -> None:
    """Write figures.md from rounds.json, and print it."""
    if (found := read(into)) is None:
        msg = f"{into}: no rounds.json; help: run the command rounds first"
        raise UserError(msg)
    text = as_markdown(found)
    write_atomically(into / "figures.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))
    typer.echo(text)


def read(into: Path) -> Comparison | None:
    """Return what was measured before, None for nothing."""
    path = into / "rounds.json"
    return Comparison.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None


def save(found: Comparison, into: Path) -> None:
    """Write the comparison."""
    text = found.model_dump_json(indent=1) + "\n"
    write_atomically(into / "rounds.json", lambda temporary: temporary.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    app()
