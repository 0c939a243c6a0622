"""This project's server and its peers under one harness: the same ONNX file, one core each, interleaved rounds.

    python benchmarks/serving/peers/make_peers.py
    python benchmarks/serving/compare.py round BUNDLE --variant student-int8 --number 1 --into results/…   (2, 3, …)
    python benchmarks/serving/compare.py table --into results/…

A round measures every server once; the next one goes the other way round, so that a drift of the machine favours none.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
import yaml

from loadtests import capacity
from loadtests.config import LoadTestConfig
from loadtests.cores import pinned
from loadtests.measure import Bench
from loadtests.server import ServerProcess, Target, free_port, our_command
from loadtests.suite import bundle_bench
from testbed.bundle import Bundle
from testbed.errors import UserError
from testbed.progress import say
from testbed.records import Capacity, LoadTestRun, load, write_atomically

PEERS = Path(__file__).with_name("peers")
OURS = "breakeven"
IN_PROCESS = "in-process.json"
EQUAL_LOAD, EQUAL_S = "equal load", 8.0
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


@dataclass(frozen=True)
class Contender:
    """A server that takes part.

    Attributes:
        name: in the table and in file names.
        about: in one line.
        command: what starts it, ``{port}`` and the like filled in later.
        ready: path that is answered with 200 once it can infer.
        template: its request's form; None for the Open Inference Protocol of ours.
    """

    name: str
    about: str
    command: tuple[str, ...]
    ready: str = "/v2/health/ready"
    template: dict[str, str] | None = field(default=None, hash=False)


def contenders(listed: Path, environments: Path) -> list[Contender]:
    """Return ours and every listed peer whose environment was made; the others are named aloud."""
    found = [Contender(OURS, "this project's server, its default batching", ())]
    for peer in yaml.safe_load(listed.read_text(encoding="utf-8"))["peers"]:
        python = environments / peer["name"] / "bin" / "python"
        if not python.exists():
            say(f"{peer['name']}: left out, {python} was not made (see make_peers.py)")
            continue
        command = tuple(part.replace("{python}", str(python.absolute())) for part in peer["command"])
        found.append(Contender(peer["name"], peer["about"], command, peer["ready"], peer["template"]))
    return found


@contextmanager
def started(contender: Contender, bench: Bench, bundle: Bundle, variant: str, core: int) -> Iterator[Target]:
    """Serve a bundle's variant on one core with one contender."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = {"{folder}": str(PEERS), "{bundle}": str(bundle.folder), "{variant}": variant, "{port}": str(port)}
    command = [_fill(part, words) for part in contender.command]
    if not command:
        command = our_command(bundle.folder, variant=variant, profile="cpu", port=port)
    template = None
    if contender.template is not None:
        template = bench.logs / f"{contender.name}.template.yaml"
        write_atomically(template, lambda temporary: temporary.write_text(yaml.safe_dump(contender.template)))
    log = bench.logs / f"{contender.name}.log"
    with ServerProcess(command, url=url, cores=(core,), log=log, ready_path=contender.ready) as server:
        yield bench.idle(
            Target(
                url=url,
                variant=variant,
                profile=contender.name,
                model=bundle.manifest.name,
                protocol="oip" if template is None else "template",
                template=template,
                pid=server.pid,
                cores=(core,),
            )
        )


def measure_round(
    bench: Bench, bundle: Bundle, variant: str, taking_part: Sequence[Contender], *, equal_qps: float
) -> Iterator[Capacity]:
    """Measure each contender once: one query at a time, at the equal load, and its peak at the SLO."""
    core = min(os.sched_getaffinity(0))
    for contender in taking_part:
        try:
            with started(contender, bench, bundle, variant, core) as target:
                single_s = bench.config.single_stream_s
                single = bench.run(target, scenario="SingleStream", duration_s=single_s, purpose="single")
                bench.run(target, scenario="Server", duration_s=EQUAL_S, purpose=EQUAL_LOAD, rate_qps=equal_qps)
                found = capacity.find(bench, target, start_qps=capacity.guess_qps(single))
        except UserError as error:
            say(f"{contender.name}: {error}")
            continue
        yield capacity.record(bench, target.variant, target.profile, [found])
        say(f"{contender.name}: {found.max_qps or 0:.0f} queries/s within the SLO; {found.reason or 'confirmed'}")


@app.command("round")
def one_round(
    bundle: Annotated[Path, typer.Argument(help="bundle folder")],
    variant: Annotated[str, typer.Option(help="variant that all of them serve")],
    number: Annotated[int, typer.Option(help="of this round, from 1; even ones go backwards")],
    into: Annotated[Path, typer.Option(help="results folder; the round gets a folder of its own in it")],
    environments: Annotated[Path, typer.Option(help="where make_peers.py put them")] = Path(".cache/peers"),
    equal_qps: Annotated[float, typer.Option(help="load at which all are compared, queries/s")] = 50.0,
    slo_ms: Annotated[float, typer.Option(help="p99 objective, ms")] = 50.0,
    only: Annotated[list[str] | None, typer.Option(help="names of the contenders, all unless given")] = None,
) -> None:
    """Measure every contender once."""
    opened = Bundle(bundle)
    taking_part = [each for each in contenders(PEERS / "peers.yaml", environments) if not only or each.name in only]
    if number % 2 == 0:
        taking_part.reverse()
    config = LoadTestConfig(slo_s=slo_ms / 1e3, single_stream_s=1.0, probe_s=1.5, max_probes=8, confirm_max_s=8.0)
    folder = into / f"round-{number}"
    with bundle_bench(config, opened, folder, logs=folder) as bench:
        list(measure_round(bench, opened, variant, taking_part, equal_qps=equal_qps))
    if not (into / IN_PROCESS).exists():
        limit = in_process(opened, variant, environments)
        write_atomically(into / IN_PROCESS, lambda temporary: temporary.write_text(json.dumps(limit) + "\n"))


def in_process(bundle: Bundle, variant: str, environments: Path) -> dict[str, float]:
    """Return texts a second of the peers' own classifier without any server, on one core, by batch size."""
    python = environments / "fastapi" / "bin" / "python"
    program = [str(python if python.exists() else sys.executable), str(PEERS.parent / "in_process.py")]
    texts = bundle.folder.parent / "dataset" / "test.jsonl"
    with pinned((min(os.sched_getaffinity(0)),)):
        done = subprocess.run(
            [*program, str(bundle.folder), variant, str(texts)], capture_output=True, text=True, check=True
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


@app.command()
def table(into: Annotated[Path, typer.Option(help="results folder")]) -> None:
    """Print the markdown table of all rounds in a results folder."""
    typer.echo(as_table(into))


def as_table(into: Path) -> str:
    """Return the markdown table: peak at the SLO, latency at the equal load, memory, each the median of the rounds."""
    capacities: dict[str, list[Capacity]] = {}
    equal: dict[str, list[LoadTestRun]] = {}
    for path in sorted(into.glob("round-*/*.json")):
        record = load(path)
        if isinstance(record, Capacity):
            capacities.setdefault(record.profile, []).append(record)
        elif isinstance(record, LoadTestRun) and record.purpose == EQUAL_LOAD:
            equal.setdefault(record.profile, []).append(record)
    lines = [
        "| server | peak/s (each round) | p50 ms | p99 ms | valid | CPU ms a query | peak RSS MB | others' CPU |",
        "|---" * 8 + "|",
    ]
    order = sorted(capacities, key=lambda name: -_median([found.max_qps_at_slo or 0.0 for found in capacities[name]]))
    lines += [_line(name, capacities[name], equal[name]) for name in order]
    lines += [
        "",
        "Medians; latencies of VALID runs. In [brackets]: held by a short probe, confirmed by no longer run.",
    ]
    limit_file = into / IN_PROCESS
    if limit_file.exists():
        limit = json.loads(limit_file.read_text(encoding="utf-8"))
        words = ", ".join(f"batch {size}: {rate:.0f}" for size, rate in limit.items())
        lines += ["", f"In process, no server, same core, tokenization included, texts/s: {words}."]
    return "\n".join(lines)


def held_qps(found: Capacity) -> float:
    """Return the confirmed load, or the highest that a probe held."""
    passed = [probe.target_qps for probe in found.probes if probe.valid and probe.meets_slo]
    return found.max_qps_at_slo or max(passed, default=0.0)


def _line(name: str, capacities: Sequence[Capacity], equal: Sequence[LoadTestRun]) -> str:
    confirmed = [found.max_qps_at_slo for found in capacities if found.max_qps_at_slo is not None]
    each = ", ".join(f"{held_qps(one):.0f}" if one.max_qps_at_slo else f"[{held_qps(one):.0f}]" for one in capacities)
    peak = f"**{_median(confirmed):.0f}**" if confirmed else "–"
    trusted = [run for run in equal if run.valid] or equal
    latencies = [run.latency.quantiles for run in trusted if run.latency is not None]
    p50, p99 = (_median([quantiles[share].value_s * 1e3 for quantiles in latencies]) for share in ("p50", "p99"))
    used = [run.server.loaded for run in equal if run.server is not None]
    cpu_ms = _median([run.server.loaded.cpu_s / run.num_ok * 1e3 for run in equal if run.server and run.num_ok])
    rss_mb = _median([(usage.peak_rss_bytes or 0) / 1e6 for usage in used])
    others = _median([run.other_cpu or 0.0 for run in equal])
    valid = f"{sum(run.valid for run in equal)} of {len(equal)}"
    return (
        f"| {name} | {peak} ({each}) | {p50:.2f} | {p99:.2f} | {valid} | {cpu_ms:.2f} | {rss_mb:.0f} | {others:.2f} |"
    )


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values)) if values else 0.0


def _fill(part: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        part = part.replace(word, value)
    return part


if __name__ == "__main__":
    app()
