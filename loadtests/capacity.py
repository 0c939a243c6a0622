"""The highest offered load that is VALID and keeps the SLO: bracket, bisect, then confirm with enough queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.checks import OWN_RULES, Claim
from loadtests.measure import Bench, Measured
from loadtests.plan import Plan
from loadtests.server import Target
from testbed.latency import min_queries
from testbed.metrics import mean_interval
from testbed.records import Capacity, Interval, LoadTestRun, Probe, save

GROWTH = 1.5
# A server that is idle but for one query in sixteen of those it can take is late for its own time, not for its queue.
LOWEST_SHARE = 1 / 16
PROBE_QUERIES = 100  # a probe of fewer could not tell 1 % from 2 % late …
PROBE_STRETCH = 5  # … but slow servers get no longer probes than this many times the usual
LATE_ALLOWED = 5  # a confirming run is long enough to pass with so many late queries
MAX_CONFIRMATIONS = 6
STEP_GROWTH = 1.5  # of the step down after each confirmation that did not hold


@dataclass(frozen=True)
class Bracket:
    """The highest load that passed and the lowest that failed, queries a second; None where none did."""

    passed_qps: float | None
    failed_qps: float | None
    probes: tuple[Probe, ...]


@dataclass(frozen=True)
class Found:
    """One measurement of the capacity: the confirming run, or None with the reason."""

    confirmation: LoadTestRun | None
    reason: str | None
    probes: tuple[Probe, ...]

    @property
    def max_qps(self) -> float | None:
        """The confirmed load."""
        return None if self.confirmation is None else self.confirmation.achieved_qps


def search(
    probe: Callable[[float], Probe],
    *,
    start_qps: float,
    limit_qps: float,
    resolution: float,
    max_probes: int,
    growth: float = GROWTH,
) -> Bracket:
    """Bracket the limit from ``start_qps`` upwards or downwards, then bisect on a logarithmic scale.

    Args:
        probe: one short run at a load.
        start_qps: a guess at the limit.
        limit_qps: no load above it is tried.
        resolution: relative width of the bracket at which the search stops.
        max_probes: probes at most.
        growth: first step of the load; steps grow to 1.5 until the limit is bracketed. A good guess takes a small one.
    """
    passed: float | None = None
    failed: float | None = None
    probes: list[Probe] = []
    qps, step = min(start_qps, limit_qps), growth
    while len(probes) < max_probes and qps >= LOWEST_SHARE * start_qps:
        found = probe(qps)
        probes.append(found)
        if found.valid and found.meets_slo:
            passed = qps
        else:
            failed = qps
        if passed is not None and (passed >= limit_qps or (failed and failed / passed <= 1 + resolution)):
            break
        if passed is None:
            qps /= step
            step = min(step * growth, GROWTH)
        elif failed is None:
            qps = min(qps * step, limit_qps)
            step = min(step * growth, GROWTH)
        else:
            qps = math.sqrt(passed * failed)
    return Bracket(passed, failed, tuple(probes))


def probe_at(bench: Bench, target: Target, qps: float) -> Probe:
    """Run one probe; it ends as soon as it can no longer pass.

    One pause of the machine fails a probe, and nothing makes up for it: so a load has failed only where a second
    probe, with other arrivals, fails too. Failing ones are short.
    """
    found = _probe_once(bench, target, qps, seed=bench.config.seed)
    if found.valid and not found.meets_slo:
        found = _probe_once(bench, target, qps, seed=bench.config.seed + 2)
    return found


def _probe_once(bench: Bench, target: Target, qps: float, *, seed: int) -> Probe:
    config = bench.config
    duration_s = min(max(config.probe_s, PROBE_QUERIES / qps), PROBE_STRETCH * config.probe_s)
    # One late query says nothing in a run of fewer than a hundred; the confirming run is where the claim is made.
    allowed = max(1, int((1 - config.slo_percentile / 100) * qps * duration_s))
    plan = bench.plan(
        target, scenario="Server", duration_s=duration_s, rate_qps=qps, stop_after_late=allowed, seed=seed
    )
    measured = _second_chance(bench, target, plan, claim="nothing")
    found = measured.figures
    return Probe(
        target_qps=qps,
        valid=measured.valid,
        meets_slo=found.num_late <= allowed and not measured.outcome.stopped_early,
        p99_s=found.p99_s,
        error_rate=found.error_rate,
        failed_checks=measured.failed,
    )


def confirm(bench: Bench, target: Target, bracket: Bracket) -> tuple[LoadTestRun | None, str | None]:
    """Run long enough for the percentile at the bracket's lower end; step down until it holds, then bisect the gap.

    Returns:
        The VALID run that keeps the SLO, or None and the reason.
    """
    if bracket.passed_qps is None:
        lowest = min(bracket.probes, key=lambda probe: probe.target_qps)
        why = f" ({', '.join(lowest.failed_checks)})" if lowest.failed_checks else ""
        return None, f"not even {lowest.target_qps:.3g} queries/s kept the SLO{why}"
    tried: list[str] = []
    best: Measured | None = None
    low_qps, high_qps, step = 0.0, math.inf, bench.config.resolution
    qps = bracket.passed_qps
    for _ in range(MAX_CONFIRMATIONS):
        measured = _confirm_once(bench, target, qps)
        if measured.valid and measured.figures.meets_slo:
            best, low_qps = measured, qps
        else:
            tried.append(f"{qps:.4g}/s: {_why(measured)}")
            high_qps = qps
        if best is None:
            qps /= 1 + step
            step *= STEP_GROWTH
        elif high_qps <= low_qps * (1 + bench.config.resolution) or math.isinf(high_qps):
            break
        else:
            qps = math.sqrt(low_qps * high_qps)
    if best is None:
        return None, "no confirming run held: " + "; ".join(tried)
    return bench.save(target, best, purpose="confirm"), None


def find(bench: Bench, target: Target, *, start_qps: float, growth: float = GROWTH) -> Found:
    """Measure the capacity of a target once, from a guess; ``growth`` as in ``search``."""
    limit_qps = math.inf if bench.ceiling_qps is None else 0.75 * bench.ceiling_qps
    bracket = search(
        lambda qps: probe_at(bench, target, qps),
        start_qps=start_qps,
        limit_qps=limit_qps,
        resolution=bench.config.resolution,
        max_probes=bench.config.max_probes,
        growth=growth,
    )
    confirmation, reason = confirm(bench, target, bracket)
    return Found(confirmation, reason, bracket.probes)


def record(bench: Bench, variant: str, profile: str, found: Sequence[Found]) -> Capacity:
    """Write and return what the measurements of one target's capacity say together."""
    config = bench.config
    confirmed = [each.confirmation for each in found if each.confirmation is not None]
    values = [run.achieved_qps for run in confirmed]
    whole = len(confirmed) == len(found)
    capacity = Capacity(
        **bench.provenance(),
        variant=variant,
        profile=profile,
        slo_s=config.slo_s,
        slo_percentile=config.slo_percentile,
        max_qps_at_slo=sum(values) / len(values) if whole else None,
        reason=None if whole else next(each.reason for each in found if each.reason),
        interval=interval_of(values),
        repeats=tuple(values),
        probes=tuple(probe for each in found for probe in each.probes),
        confirmation=tuple(Path(run.rows_file).with_suffix(".json").name for run in confirmed),
    )
    save(capacity, bench.folder / f"{variant}.{profile}.capacity.json")
    return capacity


def guess_qps(single: LoadTestRun) -> float:
    """Return a first guess at the capacity from a SingleStream run: one query at a time, back to back."""
    return 1.0 if single.latency is None else 0.9 / single.latency.mean_s


def interval_of(values: Sequence[float]) -> Interval | None:
    """Return the interval of the mean of repeated capacities, not below 0; None for fewer than two."""
    if len(values) <= 1:
        return None
    found = mean_interval(values)
    return found.model_copy(update={"low": max(0.0, found.low)})


def confirm_duration_s(qps: float, *, share: float, confirm_s: float, confirm_max_s: float) -> float:
    """Return how long a confirming run lasts: enough queries for some late ones, at least for none."""
    wanted_s = min_queries(LATE_ALLOWED, share) / qps
    least_s = (min_queries(0, share) + 1) / qps
    return max(confirm_s, min(wanted_s, confirm_max_s), least_s)


def _confirm_once(bench: Bench, target: Target, qps: float) -> Measured:
    config = bench.config
    share = config.slo_percentile / 100
    duration_s = confirm_duration_s(qps, share=share, confirm_s=config.confirm_s, confirm_max_s=config.confirm_max_s)
    num_queries = round(qps * duration_s)
    allowed = 0
    while min_queries(allowed + 1, share) <= num_queries:
        allowed += 1
    plan = bench.plan(
        target,
        scenario="Server",
        duration_s=duration_s,
        rate_qps=qps,
        stop_after_late=allowed,
        seed=config.seed + 1,  # a load is not confirmed by the arrivals that chose it
    )
    return _second_chance(bench, target, plan, claim="slo")


def _second_chance(bench: Bench, target: Target, plan: Plan, *, claim: Claim) -> Measured:
    """Measure; once more where it was the generator's machine that spoiled the run."""
    measured = bench.measure(target, plan, claim=claim)
    return bench.measure(target, plan, claim=claim) if OWN_RULES & set(measured.failed) else measured


def _why(measured: Measured) -> str:
    failed = list(measured.failed)
    if not measured.figures.meets_slo:
        failed.insert(0, f"{measured.figures.num_late} of {measured.figures.num_sent} late")
    return ", ".join(failed)
