"""How exact the load generator is: its rate and lag against a null server, and known answers.

Part of ``evidence.py judges``; alone: ``python benchmarks/judging/generator.py --raw runs/generator --into OUT``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from loadtests.ceiling import measure_ceiling
from loadtests.config import LoadTestConfig
from loadtests.cores import share_out
from loadtests.generator import GeneratorProcess
from loadtests.measure import Bench
from loadtests.queueing import lindley_lines_s, lindley_s, md1_sojourn_s, mm1_sojourn_s, quantile_interval
from loadtests.rows import read_rows
from loadtests.server import ServerProcess, Target, free_port
from testbed.records import LoadTestRun, write_atomically

KNOWN_SERVER = Path(__file__).parents[2] / "tests" / "known_server.py"
RATES_QPS = (50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0, 3000.0, 4000.0)
RATE_S, LEAST_QUERIES, KNOWN_S, STALL_S = 4.0, 400, 25.0, 12.0
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
# Forty servers at 60 % load, 50 ms a query: the client's and the loopback's part of a millisecond is small beside it.
SERVICE_S, LINES, LOAD = 0.05, 40, 0.6
CORES = share_out({0, 1}, profile="cpu")
TIMING = re.compile(r"total;dur=(.*), service;dur=(.*), line;desc=(.*)")


@dataclass(frozen=True)
class Rate:
    """What the generator made of one offered load, against a server that does nothing."""

    offered_qps: float
    achieved_qps: float
    lag_p50_s: float
    lag_p99_s: float
    generator_cpu: float | None
    failed_checks: tuple[str, ...]
    rows_sha256: str


@dataclass(frozen=True)
class Known:
    """One percentile: by the recursion on the same arrivals, by theory, and measured with its interval."""

    server: str
    figure: str
    recursion_s: float
    theory_s: float | None
    measured_s: float
    interval_s: tuple[float, float] | None
    way_s: float
    rows_sha256: str


def drive(bench: Bench, name: str, command: list[str], rate_qps: float, duration_s: float) -> LoadTestRun:
    """Offer one load to a server made for it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = [sys.executable, *(part.replace("PORT", str(port)) for part in command)]
    with ServerProcess(program, url=url, cores=CORES.server, log=bench.logs / f"{name}.log") as server:
        target = Target(url=url, variant=name, profile="external", model="m", pid=server.pid, cores=CORES.server)
        return bench.run(target, scenario="Server", duration_s=duration_s, purpose="accuracy", rate_qps=rate_qps)


def rate(bench: Bench, rate_qps: float) -> Rate:
    """Offer one load to the null server; low ones for longer, so that they have a p99."""
    duration_s = max(RATE_S, LEAST_QUERIES / rate_qps)
    run = drive(bench, "null", ["-m", "loadtests.ceiling", "PORT"], rate_qps, duration_s)
    assert run.lag is not None
    return Rate(
        offered_qps=rate_qps,
        achieved_qps=run.achieved_qps,
        lag_p50_s=run.lag.quantiles["p50"].value_s,
        lag_p99_s=run.lag.quantiles["p99"].value_s,
        generator_cpu=run.generator_cpu,
        failed_checks=tuple(check.name for check in run.checks if not check.passed),
        rows_sha256=run.rows_sha256,
    )


def theory_answers(bench: Bench, service: str) -> list[Known]:
    """Measure a server of M/D/1 or M/M/1 lines."""
    rate_qps = LOAD / SERVICE_S * LINES
    options = ["--service", service, "--service-s", str(SERVICE_S), "--lines", str(LINES)]
    run = drive(bench, service, [str(KNOWN_SERVER), "PORT", *options], rate_qps, KNOWN_S)
    rows = read_rows(bench.folder / run.rows_file)
    told = [found.groups() for each in rows.server_timing if (found := TIMING.fullmatch(each or ""))]
    total_s, service_s, line = (np.array(column, float) for column in zip(*told, strict=True))
    lines = line.astype(int)
    recursion_s = lindley_lines_s(rows.scheduled_s, service_s / 1e3, lines)
    theory = {"constant": md1_sojourn_s, "exponential": mm1_sojourn_s}[service]
    return [
        Known(
            server=f"{service}, {SERVICE_S * 1e3:g} ms, {LINES} lines",
            figure=name,
            recursion_s=_quantile(recursion_s, share),
            theory_s=theory(share, rate_qps=rate_qps / LINES, service_s=SERVICE_S),
            measured_s=_quantile(rows.latency_s, share),
            interval_s=quantile_interval(rows.latency_s, lines, share),
            way_s=float(np.median(rows.latency_s - total_s / 1e3)),
            rows_sha256=run.rows_sha256,
        )
        for name, share in SHARES.items()
    ]


def stall_answer(bench: Bench) -> Known:
    """Measure a server that stalls for a second."""
    options = ["--service-s", "0.002", "--stall-at", "400", "--stall-s", "1"]
    run = drive(bench, "stall", [str(KNOWN_SERVER), "PORT", *options], 100.0, STALL_S)
    rows = read_rows(bench.folder / run.rows_file)
    services_s = np.full(len(rows), 0.002)
    services_s[399] += 1.0
    told_s = [float(found[1]) / 1e3 for each in rows.server_timing if (found := TIMING.fullmatch(each or ""))]
    return Known(
        server="constant, 2 ms, one stall of 1 s",
        figure="p99",
        recursion_s=_quantile(lindley_s(rows.scheduled_s, services_s), 0.99),
        theory_s=None,
        measured_s=_quantile(rows.latency_s, 0.99),
        interval_s=None,
        way_s=float(np.median(rows.latency_s - told_s)),
        rows_sha256=run.rows_sha256,
    )


def measure_generator(raw: Path, into: Path) -> str:
    """Measure all of it, write generator.json, and return the tables as markdown."""
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.txt"
        texts.write_text("\n".join(f"what is the answer to question {i} ?" for i in range(100)), encoding="utf-8")
        with GeneratorProcess(cores=CORES.generator, log=raw / "generator.log") as generator:
            bench = Bench(generator, LoadTestConfig(query_timeout_s=5), texts, raw, raw, {})
            ceiling_qps = measure_ceiling(bench, cores=CORES.server).achieved_qps
            rates = [rate(bench, rate_qps) for rate_qps in RATES_QPS]
            answers = [*theory_answers(bench, "constant"), *theory_answers(bench, "exponential"), stall_answer(bench)]
            found: dict[str, Any] = {
                "machine": bench.provenance()["machine"].model_dump(mode="json"),
                "ceiling_qps": ceiling_qps,
                "rates": [asdict(each) for each in rates],
                "known_answers": [asdict(each) for each in answers],
            }
    text = json.dumps(found, indent=1) + "\n"
    write_atomically(into / "generator.json", lambda temporary: temporary.write_text(text, encoding="utf-8"))
    first = f"Ceiling against a server that does nothing, 32 in flight: {ceiling_qps:.0f} queries/s.\n"
    return "\n".join([first, *_rate_lines(rates), "", *_known_lines(answers)])


def _rate_lines(rates: list[Rate]) -> list[str]:
    head = "| offered/s | achieved/s | off by | lag p50 ms | lag p99 ms | generator's CPU | valid |"
    return [head, "|---" * 7 + "|"] + [
        f"| {each.offered_qps:g} | {each.achieved_qps:.2f} | {each.achieved_qps / each.offered_qps - 1:+.3%} "
        f"| {each.lag_p50_s * 1e3:.3f} | {each.lag_p99_s * 1e3:.3f} | {each.generator_cpu or 0:.2f} "
        f"| {'INVALID: ' + ', '.join(each.failed_checks) if each.failed_checks else 'yes'} |"
        for each in rates
    ]


def _known_lines(answers: list[Known]) -> list[str]:
    head = "| server | figure | same arrivals, ms | measured, ms | off by | of it the way, ms | theory, ms |"
    return [f"{head} measured, 95 % interval | theory in it |", "|---" * 9 + "|", *map(_known_line, answers)]


def _known_line(each: Known) -> str:
    theory = within = between = "–"
    if each.theory_s is not None and each.interval_s is not None:
        low_s, high_s = each.interval_s
        theory, between = f"{each.theory_s * 1e3:.2f}", f"{low_s * 1e3:.2f} to {high_s * 1e3:.2f}"
        within = "yes" if low_s <= each.theory_s <= high_s else "no"
    return (
        f"| {each.server} | {each.figure} | {each.recursion_s * 1e3:.2f} | {each.measured_s * 1e3:.2f} "
        f"| {each.measured_s / each.recursion_s - 1:+.1%} | {each.way_s * 1e3:.2f} | {theory} | {between} | {within} |"
    )


def _quantile(values: np.ndarray, share: float) -> float:
    return float(np.quantile(values, share, method="inverted_cdf"))


def main(
    into: Annotated[Path, typer.Option(help="folder that gets generator.json")],
    raw: Annotated[Path, typer.Option(help="folder that gets records and raw rows")] = Path("runs/generator"),
) -> None:
    """Measure the generator, and print its tables."""
    typer.echo(measure_generator(raw, into))


if __name__ == "__main__":
    typer.run(main)
