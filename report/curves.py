"""Latency against load of one row, as far as it was measured, and what it carries under another SLO."""

from __future__ import annotations

from dataclasses import dataclass

from report.evidence import Evidence
from testbed.records.cost import ServingCost


@dataclass(frozen=True)
class Point:
    """One open-loop run or probe: offered queries a second, and the p99 latency in seconds."""

    qps: float
    p99_s: float


def measured_curves(evidence: Evidence) -> dict[tuple[str, str], tuple[Point, ...]]:
    """Return the measured points of every (variant, profile)."""
    return {(variant, profile): measured_points(variant, profile, evidence) for variant, profile in evidence.rows()}


def measured_points(variant: str, profile: str, evidence: Evidence) -> tuple[Point, ...]:
    """Return the VALID open-loop runs and probes of a row, by load."""
    runs = evidence.steady_runs_of(variant, profile).values()
    points = {
        Point(run.target_qps, run.latency.quantiles["p99"].value_s)
        for run in runs
        if run.valid and run.target_qps and run.latency and not run.errors
    }
    capacity = evidence.capacity_of(variant, profile)
    for probe in capacity.probes if capacity else ():
        if probe.valid and probe.p99_s and not probe.error_rate:
            points.add(Point(probe.target_qps, probe.p99_s))
    return tuple(sorted(points, key=lambda point: (point.qps, point.p99_s)))


def qps_within(points: tuple[Point, ...], slo_s: float, row: ServingCost, measured_slo_s: float) -> float | None:
    """Return the highest load that was seen to keep p99 within ``slo_s``, or None where none was.

    At the SLO that the capacity was searched for it is the confirmed capacity. Elsewhere it is the highest measured
    load whose p99 was within, a step function that interpolates nothing: never above the confirmed capacity for a
    stricter SLO, never below it for a looser one. For a looser one only loads count that broke the SLO searched for:
    one that kept it in a short probe, and is above the confirmed capacity, did not hold when it was confirmed.
    """
    confirmed = row.max_qps_at_slo if row.valid else None
    if slo_s == measured_slo_s:
        return confirmed
    seen = max((point.qps for point in points if point.p99_s <= slo_s), default=None)
    if confirmed is None:
        return seen
    if slo_s > measured_slo_s:
        return max(confirmed, *(point.qps for point in points if measured_slo_s < point.p99_s <= slo_s), 0.0)
    return None if seen is None else min(confirmed, seen)
