"""The rules that make a run VALID, each with the figure it judged, its bound, and what to do when it failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadtests.figures import Figures
from loadtests.plan import Outcome, Plan
from loadtests.server import Target
from testbed.latency import min_queries
from testbed.records import Check, Proof

RATE_TOLERANCE = 0.01
LAG_SHARE_OF_SLO = 0.2
MAX_LATE_BY_LAG = 0.001
MAX_GENERATOR_CPU = 0.8
MAX_SHARE_OF_CEILING = 0.8
LITTLE_TOLERANCE = 0.05
# What the server says it took, and what the client saw, may differ by the network and the two event loops.
UNEXPLAINED_S, UNEXPLAINED_SHARE = 0.005, 0.3
CLOCK_GRAIN_S = 1e-3
# Errors that the generator's own machine makes: they say nothing about the server.
OWN_FAULTS = frozenset(f"connection:{name}" for name in ("EMFILE", "ENFILE", "EADDRNOTAVAIL", "ENOBUFS", "ENOMEM"))


# The rules that the generator and its machine break, not the server: such a run is worth another try.
OWN_RULES = frozenset({"own_faults", "generator_cpu", "send_rate", "send_lag", "late_by_lag"})

Claim = Literal["slo", "percentile", "nothing"]


@dataclass(frozen=True)
class Evidence:
    """What a run is judged by.

    Attributes:
        plan, outcome, figures: the run.
        share: the percentile of the claim, such as 0.99.
        claim: what will be quoted: ``slo`` (the percentile keeps it), ``percentile`` (its value), or ``nothing``.
        ceiling_qps: the generator's rate against a server that does nothing; None where it was not measured.
        counted_ok: right answers by the server's own counters, or None where it shows none.
        target: who answered.
        proof: what the server reported of itself.
    """

    plan: Plan
    outcome: Outcome
    figures: Figures
    share: float
    claim: Claim
    ceiling_qps: float | None
    counted_ok: float | None
    target: Target
    proof: Proof | None


def judge(evidence: Evidence) -> tuple[Check, ...]:
    """Return every check that applies to the run."""
    checks = [_own_faults(evidence), _generator_cpu(evidence), _little_law(evidence)]
    checks += _ceiling(evidence)
    if evidence.plan.scenario == "Server":
        checks += [_send_rate(evidence), _send_lag(evidence), _late_by_lag(evidence)]
    if evidence.claim != "nothing":
        checks.append(_enough_queries(evidence))
    checks += _server_counted(evidence)
    checks += _server_time(evidence)
    checks += _proof(evidence)
    return tuple(checks)


def _send_rate(evidence: Evidence) -> Check:
    figures, outcome = evidence.figures, evidence.outcome
    if not outcome.window_s:
        measured = 0.0
    else:
        scheduled_qps = outcome.num_scheduled / max(evidence.plan.duration_s, outcome.window_s)
        measured = figures.achieved_qps / scheduled_qps - 1
    whole = outcome.stopped_early or figures.num_sent == outcome.num_scheduled
    return Check(
        name="send_rate",
        passed=whole and abs(measured) <= RATE_TOLERANCE,
        measured=measured,
        bound=f"achieved over scheduled rate within ±{RATE_TOLERANCE:.0%}, every query sent",
        advice="the generator could not keep the schedule: give it a core of its own, or more processes",
    )


def _send_lag(evidence: Evidence) -> Check:
    bound_s = LAG_SHARE_OF_SLO * evidence.plan.slo_s
    lag = evidence.figures.lag
    measured = None if lag is None else lag.quantiles["p99"].value_s
    return Check(
        name="send_lag",
        passed=measured is not None and measured <= bound_s,
        measured=measured,
        bound=f"p99 of sent minus scheduled time ≤ {bound_s:g} s",
        advice="queries left late: give the generator a core of its own, or stop what else runs on this machine",
    )


def _late_by_lag(evidence: Evidence) -> Check:
    figures = evidence.figures
    measured = figures.num_late_by_lag / figures.num_sent if figures.num_sent else None
    return Check(
        name="late_by_lag",
        passed=measured is not None and measured <= MAX_LATE_BY_LAG,
        measured=measured,
        bound=f"queries that only the generator made late ≤ {MAX_LATE_BY_LAG:.1%}",
        advice="the generator's machine paused: run again, or stop what else runs on it",
    )


def _generator_cpu(evidence: Evidence) -> Check:
    wall_s = evidence.outcome.wall_s
    measured = evidence.outcome.cpu_s / wall_s / evidence.outcome.processes if wall_s > 0 else None
    # A closed loop is meant to keep the generator busy: there the ceiling alone is the rule.
    applies = evidence.plan.scenario == "Server"
    return Check(
        name="generator_cpu",
        passed=not applies or (measured is not None and measured <= MAX_GENERATOR_CPU),
        measured=measured,
        bound=f"CPU over wall seconds of a process ≤ {MAX_GENERATOR_CPU:g}" if applies else "any, for a closed loop",
        advice="the generator is the bottleneck: more processes (--processes), or a lower load",
    )


def _ceiling(evidence: Evidence) -> Iterator[Check]:
    if evidence.ceiling_qps is None:
        return
    measured = evidence.figures.achieved_qps / evidence.ceiling_qps
    yield Check(
        name="generator_ceiling",
        passed=measured <= MAX_SHARE_OF_CEILING,
        measured=measured,
        bound=f"rate ≤ {MAX_SHARE_OF_CEILING:g} of {evidence.ceiling_qps:.0f}/s, the rate against a null server",
        advice="the load is near what the generator itself can make: more processes (--processes)",
    )


def _own_faults(evidence: Evidence) -> Check:
    measured = sum(count for kind, count in evidence.figures.errors.items() if kind in OWN_FAULTS)
    return Check(
        name="own_faults",
        passed=measured == 0,
        measured=float(measured),
        bound="no query lost to a limit of the generator's machine",
        advice="raise the limit of open files (ulimit -n) or lower the load",
    )


def _little_law(evidence: Evidence) -> Check:
    """L = λW: L from a running count over the arrivals' window, λ and W from the rows.

    The two part where rows were lost, where times are wrong, and where the queue still grew at the end: then the
    latency is a function of the run's length and is no figure of the server.
    """
    outcome, figures = evidence.outcome, evidence.figures
    expected = figures.num_sent * figures.mean_service_s / outcome.window_s if outcome.window_s else 0.0
    measured = outcome.in_flight_mean / expected - 1 if expected > 0 else None
    # One query in flight at the window's end is an edge, not a drift.
    edge = 1.0 / max(1, figures.num_sent)
    return Check(
        name="little_law",
        passed=measured is not None and abs(measured) <= LITTLE_TOLERANCE + edge,
        measured=measured,
        bound=f"mean in flight over rate × mean time within ±{LITTLE_TOLERANCE:.0%}",
        advice="the server did not keep up, so its queue grew with the run: lower the load, or let the server shed",
    )


def _enough_queries(evidence: Evidence) -> Check:
    """Enough queries for the claim: within the SLO with 99 % confidence, or an interval around the percentile."""
    figures, share = evidence.figures, evidence.share
    if evidence.claim == "slo" and figures.meets_slo:
        needed = min_queries(figures.num_late, share)
        bound = f"≥ {needed} queries show p{share * 100:g} within the SLO, {figures.num_late} late (99 % confidence)"
    else:
        needed = int(np.ceil(np.log(0.025) / np.log(share)))
        bound = f"≥ {needed} queries for a 95 % interval around p{share * 100:g}"
    return Check(
        name="enough_queries",
        passed=figures.num_sent >= needed,
        measured=float(figures.num_sent),
        bound=bound,
        advice="a longer run, or a load further below the limit",
    )


def _server_counted(evidence: Evidence) -> Iterator[Check]:
    if evidence.counted_ok is None:
        return
    yield Check(
        name="server_counted",
        passed=evidence.counted_ok == evidence.figures.num_ok,
        measured=evidence.counted_ok,
        bound=f"the server counted the {evidence.figures.num_ok} right answers that came in",
        advice="another client, a proxy that retries, or counters that are wrong: look at /metrics",
    )


def _server_time(evidence: Evidence) -> Iterator[Check]:
    timings = evidence.figures.timings
    if not timings:
        return
    total_s = timings.get("total", sum(timings.values()))
    seen_s = evidence.figures.mean_answer_s
    unexplained_s = seen_s - total_s
    bound_s = max(UNEXPLAINED_S, UNEXPLAINED_SHARE * seen_s)
    yield Check(
        name="server_time",
        passed=-CLOCK_GRAIN_S <= unexplained_s <= bound_s,
        measured=unexplained_s,
        bound=f"the client's mean minus the server's own total between 0 and {bound_s:.4f} s",
        advice="time is lost between the two, or the server's clocks are wrong: look at its accept queue and CPU",
    )


def _proof(evidence: Evidence) -> Iterator[Check]:
    if not evidence.target.file_sha256:
        return
    proof = evidence.proof
    yield Check(
        name="proof",
        passed=proof is not None and proof.file_sha256 in evidence.target.file_sha256,
        measured=None,
        bound="the server names the variant's own file",
        advice="another server answers on this port, or it served another file",
    )
