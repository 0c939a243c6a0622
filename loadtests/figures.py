"""From raw rows to the figures of a run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from loadtests.plan import Outcome, Plan
from loadtests.rows import Rows
from testbed.latency import num_within, summarise
from testbed.records import LatencySummary

TIMING = re.compile(r"([\w-]+)\s*;\s*dur=([\d.]+)")


@dataclass(frozen=True)
class Figures:
    """What a run measured.

    Attributes:
        num_sent, num_ok, num_late: queries; late ones missed the SLO, errors among them.
        duration_s: from the first to the last scheduled time.
        achieved_qps: over the window that the queries were sent in.
        goodput_qps: right answers within the SLO, a second of that window.
        latency, lag: summaries, in seconds.
        mean_service_s: sent to done, answered or not.
        mean_answer_s: sent to done, of right answers.
        errors: kind to count.
        error_rate: of the queries sent.
        timings: the server's own mean seconds by part, of right answers.
        num_late_by_lag: late queries that would have been in time, had they been sent on time.
        meets_slo: the share within the SLO and the errors are in bounds.
    """

    num_sent: int
    num_ok: int
    num_late: int
    duration_s: float
    achieved_qps: float
    goodput_qps: float
    latency: LatencySummary | None
    lag: LatencySummary | None
    mean_service_s: float
    mean_answer_s: float
    errors: dict[str, int]
    error_rate: float
    timings: dict[str, float]
    num_late_by_lag: int
    meets_slo: bool

    @property
    def p99_s(self) -> float | None:
        """The 99th percentile of the answered queries."""
        return None if self.latency is None else self.latency.quantiles["p99"].value_s


def figures(rows: Rows, plan: Plan, outcome: Outcome, *, slo_percentile: float, max_error_rate: float) -> Figures:
    """Return the figures of one run; errors are misses, never fast answers."""
    latency_s = rows.latency_s
    num_sent, num_ok = len(rows), int(rows.ok.sum())
    num_in_time = num_within(latency_s, plan.slo_s)
    error_rate = 1 - num_ok / num_sent if num_sent else 1.0
    window_s = _window_s(rows, plan, outcome)
    return Figures(
        num_sent=num_sent,
        num_ok=num_ok,
        num_late=num_sent - num_in_time,
        duration_s=float(rows.scheduled_s[-1] - rows.scheduled_s[0]) if num_sent else 0.0,
        achieved_qps=num_sent / window_s if window_s else 0.0,
        goodput_qps=num_in_time / window_s if window_s else 0.0,
        latency=summarise(latency_s[rows.ok]),
        lag=summarise(np.maximum(rows.lag_s, 0.0)),
        mean_service_s=float((rows.done_s - rows.sent_s).mean()) if num_sent else 0.0,
        mean_answer_s=float((rows.done_s - rows.sent_s)[rows.ok].mean()) if num_ok else 0.0,
        errors=dict(Counter(error for error in rows.errors if error is not None)),
        error_rate=error_rate,
        timings=mean_timings(rows),
        num_late_by_lag=int((rows.ok & (latency_s > plan.slo_s) & (latency_s - rows.lag_s <= plan.slo_s)).sum()),
        meets_slo=bool(num_sent)
        and not outcome.stopped_early
        and num_in_time >= slo_percentile / 100 * num_sent
        and error_rate <= max_error_rate,
    )


def mean_timings(rows: Rows) -> dict[str, float]:
    """Return the mean seconds of each part of the right answers' ``Server-Timing`` (which is in milliseconds)."""
    sums: Counter[str] = Counter()
    num_told = 0
    for header, ok in zip(rows.server_timing, rows.ok, strict=True):
        if header is None or not ok:
            continue
        num_told += 1
        for name, milliseconds in TIMING.findall(header):
            sums[name] += float(milliseconds) / 1e3  # type: ignore[assignment]  # Counter's values may be floats
    return {name: total / num_told for name, total in sums.items()}


def _window_s(rows: Rows, plan: Plan, outcome: Outcome) -> float:
    """Return the seconds over which the queries were sent; a generator that falls behind stretches them."""
    if plan.scenario != "Server":
        return outcome.wall_s
    if not len(rows):
        return 0.0
    behind_s = max(0.0, float(rows.sent_s[-1] - rows.scheduled_s[-1]))
    share = len(rows) / outcome.num_scheduled
    return share * max(plan.duration_s, outcome.window_s) + behind_s
