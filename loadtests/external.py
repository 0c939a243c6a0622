"""Load tests of a server that is not ours: any URL that speaks one of the protocols, or a template's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from loadtests.regression import Ratio, compare
from loadtests.server import Target
from loadtests.texts import read_texts
from testbed.errors import UserError
from testbed.records import Capacity, LoadTestRun, file_sha256


class Verdict(IntEnum):
    """What a load test says to a script, as an exit status."""

    HOLDS = 0
    MISSES = 1
    INVALID = 2
    COULD_NOT_RUN = 3


@dataclass(frozen=True)
class Finding:
    """What a load test of a URL found.

    Attributes:
        result: the run at the load that was asked, or the capacity.
        ratios: against the baseline; empty without one.
        verdict: the exit status; a regression against the baseline is a miss.
    """

    result: LoadTestRun | Capacity
    ratios: tuple[Ratio, ...]
    verdict: Verdict


def load_test(
    config: LoadTestConfig,
    target: Target,
    *,
    texts_file: Path,
    folder: Path,
    rate_qps: float | None = None,
    duration_s: float = 10.0,
    processes: int = 1,
    baseline: Path | None = None,
) -> Finding:
    """Load-test a server that is up.

    Args:
        config: objective, lengths of the runs, arrivals; its variants and texts are not used.
        target: the server.
        texts_file: JSONL, CSV or plain text, one query each.
        folder: gets records, raw rows and logs.
        rate_qps: the load to offer; None searches for the highest one that keeps the SLO.
        duration_s: of the run at ``rate_qps``.
        processes: of the generator.
        baseline: record of an earlier load test of the same kind, its raw rows beside it.

    Raises:
        UserError: nothing answers at the URL, there are no texts, or the baseline is of another kind.
    """
    with bench_for(config, target, texts_file=texts_file, folder=folder, processes=processes) as bench:
        result = _measure(bench, target, rate_qps, duration_s)
    ratios = () if baseline is None else tuple(compare(result, folder, baseline))
    said = verdict(result)
    regressed = said is Verdict.HOLDS and any(ratio.regressed for ratio in ratios)
    return Finding(result, ratios, Verdict.MISSES if regressed else said)


def _measure(bench: Bench, target: Target, rate_qps: float | None, duration_s: float) -> LoadTestRun | Capacity:
    if rate_qps is not None:
        plan = bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=rate_qps)
        return bench.save(target, bench.measure(target, plan, claim="slo"), purpose="load")
    target = bench.idle(target)
    single = bench.run(target, scenario="SingleStream", duration_s=bench.config.single_stream_s, purpose="single")
    start_qps = capacity.guess_qps(single)
    found = [capacity.find(bench, target, start_qps=start_qps) for _ in range(bench.config.repeats)]
    return capacity.record(bench, target.variant, target.profile, found)


def verdict(result: LoadTestRun | Capacity) -> Verdict:
    """Return the exit status of a load test."""
    if isinstance(result, Capacity):
        if result.max_qps_at_slo is not None:
            return Verdict.HOLDS
        return Verdict.MISSES if any(probe.valid for probe in result.probes) else Verdict.INVALID
    if not result.valid:
        return Verdict.INVALID
    return Verdict.HOLDS if result.meets_slo else Verdict.MISSES


@contextmanager
def bench_for(
    config: LoadTestConfig, target: Target, *, texts_file: Path, folder: Path, processes: int = 1
) -> Iterator[Bench]:
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
    with GeneratorProcess(cores=cores.generator, log=folder / "generator.log", processes=processes) as generator:
        bench = Bench(generator, config, texts_file, folder, folder, {"texts": file_sha256(texts_file)})
        measure_ceiling(bench, cores=cores.server)
        yield bench
