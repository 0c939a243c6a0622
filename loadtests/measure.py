"""One run from plan to record: drive the server, meter it, cross-check it, judge it, save it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from loadtests.checks import Claim, Evidence, judge
from loadtests.config import LoadTestConfig
from loadtests.counts import ServerCounts, counts_between
from loadtests.figures import Figures, figures
from loadtests.generator import GeneratorProcess
from loadtests.neighbours import other_share, read_cores
from loadtests.plan import Arrivals, Outcome, Plan
from loadtests.rows import read_rows
from loadtests.scrape import read_counters, read_proof
from loadtests.server import Target
from testbed.machine import Provenance, provenance
from testbed.meter import Meter
from testbed.records import Check, LoadTestRun, Proof, Scenario, ServerUsage, Usage, file_sha256, save

# MLPerf's percentiles; the open loop's is the SLO's.
PERCENTILES = {"SingleStream": 90.0, "MultiStream": 99.0}


@dataclass(frozen=True)
class Measured:
    """One run before it is a record: what the generator did, what came of it, and the verdict on it."""

    plan: Plan
    outcome: Outcome
    figures: Figures
    checks: tuple[Check, ...]
    server: ServerUsage | None
    counts: ServerCounts
    other_cpu: float | None
    proof: Proof | None

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that did not pass."""
        return tuple(check.name for check in self.checks if not check.passed)

    @property
    def valid(self) -> bool:
        """Every check passed."""
        return not self.failed


@dataclass
class Bench:
    """Where runs are made: one generator, one set of texts, one folder of results.

    Args:
        generator: a started generator.
        config: the section of the experiment file.
        texts_file: the queries' texts.
        folder: gets records and raw rows.
        logs: gets what the processes say.
        parents: hashes of what the runs were made from.
        ceiling_qps: the generator's own rate, once it was measured.
    """

    generator: GeneratorProcess
    config: LoadTestConfig
    texts_file: Path
    folder: Path
    logs: Path
    parents: dict[str, str]
    ceiling_qps: float | None = None
    _numbers: Counter[str] = field(default_factory=Counter)

    def plan(self, target: Target, *, scenario: Scenario, duration_s: float, **more: object) -> Plan:
        """Return a plan with the experiment's settings; ``more`` are further fields of Plan."""
        settings: dict[str, object] = {
            "url": target.url,
            "protocol": target.protocol,
            "model": target.model,
            "template": target.template,
            "texts_file": self.texts_file,
            "scenario": scenario,
            "arrivals": self.config.arrivals if scenario == "Server" else Arrivals(),
            "duration_s": duration_s,
            "seed": self.config.seed,
            "timeout_s": self.config.query_timeout_s,
            "slo_s": self.config.slo_s,
            "rows_file": self.generator.next_rows_file(),
        }
        return Plan.model_validate(settings | more)

    def measure(self, target: Target, plan: Plan, *, claim: Claim) -> Measured:
        """Carry out a plan; the server's process tree is metered where it is ours."""
        before = read_counters(target.url)
        # The meter is our own process's: the generator's and the scrapes' time are not the server's.
        meter = None if target.pid is None else self._meter(target).begin()
        cores = {*(target.cores or ()), *(self.generator.cores or ())}
        times, begin_s = read_cores(cores), time.monotonic()
        outcome = self.generator.run(plan)
        wall_s, times_after = time.monotonic() - begin_s, read_cores(cores)
        loaded = None if meter is None else meter.end()
        counts = counts_between(before, read_counters(target.url))
        rows = read_rows(outcome.rows_file)
        found = figures(
            rows, plan, outcome, slo_percentile=self.config.slo_percentile, max_error_rate=self.config.max_error_rate
        )
        proof = read_proof(target.url, target.model) if target.file_sha256 else None
        evidence = Evidence(
            plan=plan,
            outcome=outcome,
            figures=found,
            share=PERCENTILES.get(plan.scenario, self.config.slo_percentile) / 100,
            claim=claim,
            ceiling_qps=self.ceiling_qps,
            counted_ok=None if counts.ok is None else counts.ok - plan.warmup_queries,
            target=target,
            proof=proof,
        )
        own_s = None if loaded is None or target.cores is None else loaded.cpu_s + outcome.cpu_s
        other = None if own_s is None else other_share(times, times_after, own_s=own_s, wall_s=wall_s)
        return Measured(plan, outcome, found, judge(evidence), _server(target, loaded, counts), counts, other, proof)

    def provenance(self) -> Provenance:
        """Return the fields that all records of this bench share."""
        return provenance(self.config.model_dump(mode="json"), self.parents)

    def idle(self, target: Target) -> Target:
        """Return the target with its usage over a window without requests."""
        if target.pid is None or not self.config.idle_s:
            return target
        meter = self._meter(target).begin()
        time.sleep(self.config.idle_s)  # the window itself: nothing is awaited
        return replace(target, idle=meter.end())

    def save(self, target: Target, measured: Measured, *, purpose: str) -> LoadTestRun:
        """Write the run's record and its raw rows under the target's name, and return the record."""
        plan, found = measured.plan, measured.figures
        stem = f"{target.variant}.{target.profile}.{plan.scenario}"
        self._numbers[stem] += 1
        path = self.folder / f"{stem}.{self._numbers[stem]}.json"
        rows_file = path.with_suffix(".parquet")
        self.folder.mkdir(parents=True, exist_ok=True)
        rows_file.write_bytes(measured.outcome.rows_file.read_bytes())
        record = LoadTestRun(
            **self.provenance(),
            variant=target.variant,
            profile=target.profile,
            scenario=plan.scenario,
            purpose=purpose,
            protocol=plan.protocol,
            target_qps=plan.rate_qps if plan.scenario == "Server" else None,
            seed=plan.seed,
            arrivals=plan.arrivals.model_dump(mode="json"),
            slo_s=self.config.slo_s,
            slo_percentile=self.config.slo_percentile,
            num_scheduled=measured.outcome.num_scheduled,
            num_sent=found.num_sent,
            num_ok=found.num_ok,
            errors=found.errors,
            duration_s=found.duration_s,
            achieved_qps=found.achieved_qps,
            goodput_qps=found.goodput_qps,
            latency=found.latency,
            lag=found.lag,
            meets_slo=found.meets_slo,
            valid=measured.valid,
            checks=measured.checks,
            timings=found.timings,
            generator_cpu=measured.outcome.cpu_s / measured.outcome.wall_s / measured.outcome.processes,
            other_cpu=measured.other_cpu,
            server=measured.server,
            proof=measured.proof,
            rows_file=rows_file.name,
            rows_sha256=file_sha256(rows_file),
        )
        save(record, path)
        return record

    def run(
        self, target: Target, *, scenario: Scenario, duration_s: float, purpose: str, **more: object
    ) -> LoadTestRun:
        """Plan, measure and save in one go."""
        plan = self.plan(target, scenario=scenario, duration_s=duration_s, **more)
        claim: Claim = "nothing" if scenario in {"Offline", "ClosedLoop"} else "percentile"
        return self.save(target, self.measure(target, plan, claim=claim), purpose=purpose)

    def _meter(self, target: Target) -> Meter:
        assert target.pid is not None
        return Meter(
            pid=target.pid,
            device=target.device,
            assumed_watts=self.config.assumed_watts,
            assumed_from="loadtests.assumed_watts",
        )


def _server(target: Target, loaded: Usage | None, counts: ServerCounts) -> ServerUsage | None:
    if loaded is None:
        return None
    return ServerUsage(
        idle=target.idle,
        loaded=loaded,
        cores=target.cores,
        mean_batch_texts=counts.mean_batch_texts,
        padding_ratio=counts.padding_ratio,
        counted_requests=None if counts.requests is None else int(counts.requests),
    )
