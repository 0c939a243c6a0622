"""Load tests of a server that is not ours: any URL that speaks one of the protocols, or a template's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import httpx

from loadtests import capacity
from loadtests.ceiling import measure_ceiling
from loadtests.config import LoadTestConfig
from loadtests.cores import share_out
from loadtests.generator import GeneratorProcess
from loadtests.measure import Bench
from loadtests.protocols import wire_form
from loadtests.server import Target
from loadtests.texts import read_texts
from testbed.errors import UserError
from testbed.records import Capacity, LoadTestRun, file_sha256

CONNECT_S = 5.0


class Verdict(IntEnum):
    """What a load test says to a script, as an exit status."""

    HOLDS = 0
    MISSES = 1
    INVALID = 2
    COULD_NOT_RUN = 3


def measure_load(
    config: LoadTestConfig, target: Target, *, texts_file: Path, folder: Path, rate_qps: float, duration_s: float
) -> LoadTestRun:
    """Offer one load to a server and return the run.

    Raises:
        UserError: nothing answers at the URL, or there are no texts.
    """
    with bench_for(config, target, texts_file=texts_file, folder=folder) as bench:
        plan = bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=rate_qps)
        return bench.save(target, bench.measure(target, plan, claim="slo"), purpose="load")


def measure_capacity(config: LoadTestConfig, target: Target, *, texts_file: Path, folder: Path) -> Capacity:
    """Find the highest load at which a server keeps the SLO.

    Raises:
        UserError: nothing answers at the URL, or there are no texts.
    """
    with bench_for(config, target, texts_file=texts_file, folder=folder) as bench:
        target = bench.idle(target)
        single = bench.run(target, scenario="SingleStream", duration_s=config.single_stream_s, purpose="single")
        found = [capacity.find(bench, target, start_qps=capacity.guess_qps(single)) for _ in range(config.repeats)]
        return capacity.record(bench, target.variant, target.profile, found)


def verdict(result: LoadTestRun | Capacity) -> Verdict:
    """Return the exit status of a load test."""
    if isinstance(result, Capacity):
        return Verdict.MISSES if result.max_qps_at_slo is None else Verdict.HOLDS
    if not result.valid:
        return Verdict.INVALID
    return Verdict.HOLDS if result.meets_slo else Verdict.MISSES


@contextmanager
def bench_for(config: LoadTestConfig, target: Target, *, texts_file: Path, folder: Path) -> Iterator[Bench]:
    """Start a generator whose ceiling is known, for a target that answers."""
    texts = read_texts(texts_file)
    form = wire_form(target.protocol, model=target.model, template=target.template)
    try:
        answer = httpx.post(
            target.url + form.path, content=form.body(texts[:1]), headers=form.headers, timeout=config.query_timeout_s
        )
    except httpx.HTTPError as error:
        msg = f"{target.url}: nothing answers ({error}); help: start the server, check host and port"
        raise UserError(msg) from error
    if fault := form.fault(answer.status_code, answer.content):
        said = answer.text[:200]
        msg = f"{target.url}{form.path}: a first query came back as {fault}: {said}; help: check --protocol and --model"
        raise UserError(msg)
    cores = share_out(os.sched_getaffinity(0), profile="cpu")
    with GeneratorProcess(cores=cores.generator, log=folder / "generator.log") as generator:
        bench = Bench(generator, config, texts_file, folder, folder, {"texts": file_sha256(texts_file)})
        measure_ceiling(bench, cores=cores.server)
        yield bench
