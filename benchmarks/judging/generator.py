"""How exact the load generator is: its rate and lag against a null server, and known answers.

    python benchmarks/judging/generator.py --into results/…

Prints a markdown table of each, and keeps the records with their raw rows in the folder.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from loadtests.ceiling import measure_ceiling
from loadtests.config import LoadTestConfig
from loadtests.cores import share_out
from loadtests.generator import GeneratorProcess
from loadtests.measure import Bench
from loadtests.queueing import lindley_s, md1_sojourn_s, mm1_sojourn_s
from loadtests.rows import read_rows
from loadtests.server import ServerProcess, Target, free_port
from testbed.records import LoadTestRun

ROOT = Path(__file__).parents[2]
RATES_QPS = (50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
CORES = share_out({0, 1}, profile="cpu")


def drive(bench: Bench, name: str, command: list[str], rate_qps: float, duration_s: float) -> LoadTestRun:
    """Offer one load to a server made for it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = [sys.executable, *(part.replace("PORT", str(port)) for part in command)]
    with ServerProcess(program, url=url, cores=CORES.server, log=bench.logs / f"{name}.log") as server:
        target = Target(url=url, variant=name, profile="external", model="m", pid=server.pid, cores=CORES.server)
        return bench.run(target, scenario="Server", duration_s=duration_s, purpose="accuracy", rate_qps=rate_qps)


def rates(bench: Bench, duration_s: float) -> None:
    """Print achieved against scheduled rate, and the lag."""
    print(
        "| offered/s | achieved/s | off by | lag p50 ms | lag p99 ms | generator's CPU | valid |\n" + "|---" * 7 + "|"
    )
    for rate_qps in RATES_QPS:
        run = drive(bench, "null", ["-m", "loadtests.ceiling", "PORT"], rate_qps, duration_s)
        assert run.lag is not None
        lags = [run.lag.quantiles[name].value_s * 1e3 for name in ("p50", "p99")]
        off = run.achieved_qps / rate_qps - 1
        print(
            f"| {rate_qps:g} | {run.achieved_qps:.2f} | {off:+.3%} | {lags[0]:.3f} | {lags[1]:.3f} "
            f"| {run.generator_cpu or 0:.2f} | {run.valid} |"
        )


def known_answers(bench: Bench, duration_s: float) -> None:
    """Print measured latencies beside those of theory and of Lindley's recursion on the same arrivals."""
    head = (
        "| server | load | figure | exact ms | measured ms | interval ms | way ms | off by | off by without the way |"
    )
    print(f"\n{head}\n" + "|---" * 9 + "|")
    script = str(ROOT / "tests" / "known_server.py")
    service_s, rate_qps = 0.01, 60.0
    known = Known(bench, drive(bench, "constant", [script, "PORT", "--service-s", "0.01"], rate_qps, duration_s))
    lindley = lindley_s(known.rows.scheduled_s, service_s)
    for name, share in SHARES.items():
        known.show("constant 10 ms, same arrivals", name, float(np.quantile(lindley, share, method="inverted_cdf")))
        exact_s = md1_sojourn_s(share, rate_qps=rate_qps, service_s=service_s)
        known.show("constant 10 ms, M/D/1", name, exact_s)
    command = [script, "PORT", "--service", "exponential", "--service-s", "0.01"]
    known = Known(bench, drive(bench, "exponential", command, rate_qps, duration_s))
    for name, share in SHARES.items():
        exact_s = mm1_sojourn_s(share, rate_qps=rate_qps, service_s=service_s)
        known.show("exponential 10 ms, M/M/1", name, exact_s)
    command = [script, "PORT", "--service-s", "0.002", "--stall-at", "500", "--stall-s", "1"]
    known = Known(bench, drive(bench, "stall", command, 100.0, duration_s))
    services = np.full(len(known.rows), 0.002)
    services[499] += 1.0
    stalled = lindley_s(known.rows.scheduled_s, services)
    known.show(
        "constant 2 ms, stalled 1 s, same arrivals", "p99", float(np.quantile(stalled, 0.99, method="inverted_cdf"))
    )


class Known:
    """A run against a known server, and the way between the two: what their clocks disagree by, at the median."""

    def __init__(self, bench: Bench, run: LoadTestRun) -> None:
        self.run = run
        self.rows = read_rows(bench.folder / run.rows_file)
        told_s = [float((header or "").removeprefix("total;dur=")) / 1e3 for header in self.rows.server_timing]
        self.way_s = float(np.median(self.rows.latency_s - told_s))

    def show(self, server: str, name: str, exact_s: float) -> None:
        """Print one line."""
        assert self.run.latency is not None
        found = self.run.latency.quantiles[name]
        between = "–" if found.interval is None else f"{found.interval.low * 1e3:.2f}–{found.interval.high * 1e3:.2f}"
        off, off_without = (value / exact_s - 1 for value in (found.value_s, found.value_s - self.way_s))
        print(
            f"| {server} | {self.run.target_qps:g}/s | {name} | {exact_s * 1e3:.2f} | {found.value_s * 1e3:.2f} "
            f"| {between} | {self.way_s * 1e3:.2f} | {off:+.1%} | {off_without:+.1%} |"
        )


def main(
    into: Annotated[Path, typer.Option(help="folder that gets records and raw rows")],
    rate_s: Annotated[float, typer.Option(help="seconds of each rate")] = 8.0,
    known_s: Annotated[float, typer.Option(help="seconds of each known server")] = 25.0,
) -> None:
    """Measure the generator."""
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.txt"
        texts.write_text("\n".join(f"what is the answer to question {i} ?" for i in range(100)), encoding="utf-8")
        with GeneratorProcess(cores=CORES.generator, log=into / "generator.log") as generator:
            bench = Bench(generator, LoadTestConfig(query_timeout_s=5), texts, into, into, {})
            ceiling = measure_ceiling(bench, cores=CORES.server)
            print(f"Ceiling against a null server, 32 in flight: {ceiling.achieved_qps:.0f} queries/s.\n")
            rates(bench, rate_s)
            known_answers(bench, known_s)


if __name__ == "__main__":
    typer.run(main)
