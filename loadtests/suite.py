"""All load tests of a bundle: every variant on every profile, interleaved, into one folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtests import capacity
from loadtests.ceiling import measure_ceiling
from loadtests.config import LoadTestConfig
from loadtests.cores import share_out
from loadtests.generator import GeneratorProcess
from loadtests.measure import Bench
from loadtests.server import ServerProcess, Target, free_port, our_command
from testbed.bundle import MANIFEST, Bundle
from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.progress import Progress, say
from testbed.records import LoadTestRun, Record, Scenario, file_sha256

# The closed scenarios beside SingleStream: MLPerf's MultiStream has 8 samples a query.
SETTINGS: dict[Scenario, dict[str, int]] = {
    "MultiStream": {"texts_per_query": 8},
    "Offline": {"users": 8, "texts_per_query": 8},
    "ClosedLoop": {"users": 16},
}


@dataclass
class Subject:
    """One variant on one profile, and what was found of it so far."""

    variant: str
    profile: str
    single: LoadTestRun | None = None
    found: list[capacity.Found] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How it is called in files and lines."""
        return f"{self.variant}.{self.profile}"

    @property
    def best_qps(self) -> float:
        """The first confirmed load, 0 where none was."""
        return max((found.max_qps or 0.0 for found in self.found), default=0.0)


def run_suite(config: LoadTestConfig, *, bundle: Path, profiles: Sequence[str], folder: Path) -> list[Record]:
    """Load-test the bundle's variants on the profiles, and return every record that was written to ``folder``.

    The folder appears when all of it is there; what the processes said goes to ``logs`` beside it.

    For each: idle window, SingleStream, capacity search with its confirming run, repeated and interleaved; then the
    latency curve of the fastest variants of each profile, and overload where the config asks for it.

    Raises:
        UserError: an unknown variant, no texts, a server that does not start.
    """
    opened = Bundle(bundle)
    known = [variant.name for variant in opened.manifest.variants]
    if unknown := sorted(set(config.variants) - set(known)):
        msg = f"loadtests.variants: no {unknown[0]!r} in {bundle}; help: one of {', '.join(known)}"
        raise UserError(msg)
    subjects = [Subject(variant, profile) for profile in profiles for variant in config.variants or known]
    with whole_folder(folder) as whole, bundle_bench(config, opened, whole, logs=folder.with_name("logs")) as bench:
        return [*_capacities(bench, opened, subjects), *_curves(bench, opened, subjects)]


@contextmanager
def bundle_bench(config: LoadTestConfig, bundle: Bundle, folder: Path, *, logs: Path) -> Iterator[Bench]:
    """Start a generator whose ceiling is known, for the servers of a bundle.

    Raises:
        UserError: no texts.
    """
    texts_file = _texts_file(config, bundle.folder)
    parents = {"bundle": file_sha256(bundle.folder / MANIFEST), "texts": file_sha256(texts_file)}
    cores = share_out(os.sched_getaffinity(0), profile="cpu")
    with GeneratorProcess(cores=cores.generator, log=logs / "generator.log") as generator:
        bench = Bench(generator, config, texts_file, folder, logs, parents)
        measure_ceiling(bench, cores=cores.server)
        say(f"load tests: the generator's own ceiling is {bench.ceiling_qps:.0f} queries/s")
        yield bench


def _capacities(bench: Bench, bundle: Bundle, subjects: Sequence[Subject]) -> Iterator[Record]:
    repeats = bench.config.repeats
    with Progress("load tests", total=repeats * len(subjects)) as progress:
        for repeat in range(repeats):
            # Every other round goes backwards, so that a drift of the machine favours no variant.
            for subject in subjects if repeat % 2 == 0 else reversed(subjects):
                yield from _measure_once(bench, bundle, subject)
                progress.advance(latest=f"{subject.name}: {_told(subject)}")
    for subject in subjects if "Server" in bench.config.scenarios else ():
        yield capacity.record(bench, subject.variant, subject.profile, subject.found)


def _measure_once(bench: Bench, bundle: Bundle, subject: Subject) -> Iterator[LoadTestRun]:
    with serving(bench, bundle, subject) as target:
        if subject.single is None:
            duration_s = bench.config.single_stream_s
            subject.single = bench.run(target, scenario="SingleStream", duration_s=duration_s, purpose="single")
            yield subject.single
            for scenario in sorted(set(bench.config.scenarios) & set(SETTINGS)):
                settings = SETTINGS[scenario]
                yield bench.run(target, scenario=scenario, duration_s=duration_s, purpose="closed", **settings)
        if "Server" not in bench.config.scenarios:
            return
        found = capacity.find(bench, target, start_qps=subject.best_qps or capacity.guess_qps(subject.single))
        subject.found.append(found)
        if found.confirmation is not None:
            yield found.confirmation


def _curves(bench: Bench, bundle: Bundle, subjects: Sequence[Subject]) -> Iterator[LoadTestRun]:
    config = bench.config
    for subject in _fastest(subjects, config.curve_variants):
        with serving(bench, bundle, subject) as target:
            for fraction in config.curve_fractions:
                qps = fraction * subject.best_qps
                duration_s = capacity.confirm_duration_s(
                    qps,
                    share=config.slo_percentile / 100,
                    confirm_s=config.probe_s,
                    confirm_max_s=config.confirm_s,
                )
                yield bench.run(target, scenario="Server", duration_s=duration_s, purpose="curve", rate_qps=qps)
        say(f"load tests: latency curve of {subject.name} done")


@contextmanager
def serving(bench: Bench, bundle: Bundle, subject: Subject, *, extra: Sequence[str] = ()) -> Iterator[Target]:
    """Serve a subject while the body runs; ``extra`` are further options of the server."""
    cores = share_out(os.sched_getaffinity(0), profile=subject.profile).server
    port = free_port()
    command = our_command(bundle.folder, variant=subject.variant, profile=subject.profile, port=port, extra=extra)
    url = f"http://127.0.0.1:{port}"
    with ServerProcess(command, url=url, cores=cores, log=bench.logs / f"{subject.name}.log") as server:
        target = Target(
            url=url,
            variant=subject.variant,
            profile=subject.profile,
            model=bundle.manifest.name,
            protocol=bench.config.protocol,
            pid=server.pid,
            cores=cores,
            device=0 if subject.profile == "gpu" else None,
            file_sha256=frozenset(bundle.manifest.variant(subject.variant).files.values()),
        )
        yield bench.idle(target)


def _texts_file(config: LoadTestConfig, bundle: Path) -> Path:
    """Return the file of texts: the config's, or the test split that lies beside the bundle."""
    path = config.texts_file or bundle.parent / "dataset" / "test.jsonl"
    if not path.is_file():
        msg = f"{path}: no texts to send; help: set loadtests.texts_file to a JSONL, CSV or plain text file"
        raise UserError(msg)
    return path


def _fastest(subjects: Sequence[Subject], count: int) -> list[Subject]:
    """Return the fastest variants of each profile."""
    chosen: list[Subject] = []
    for profile in dict.fromkeys(subject.profile for subject in subjects):
        able = [subject for subject in subjects if subject.profile == profile and subject.best_qps > 0]
        chosen += sorted(able, key=lambda subject: -subject.best_qps)[:count]
    return chosen


def _told(subject: Subject) -> str:
    if not subject.found:
        return "measured"
    found = subject.found[-1]
    return f"{found.max_qps:.0f} queries/s within the SLO" if found.max_qps else str(found.reason)
