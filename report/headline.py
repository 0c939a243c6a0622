"""The verdict in one sentence."""

from __future__ import annotations

from report.words import count, figures3, usd
from testbed.records.cost import Crossing, ServingCost
from testbed.records.decision import Decision

Rows = tuple[ServingCost, ...]
Crossings = tuple[Crossing, ...]


def headline(rows: Rows, decision: Decision, break_even: Crossings, payback: Crossings, baseline: str) -> str:
    """Return what to deploy, what a query costs, against what, and where the lines cross."""
    chosen = next((r for r in rows if (r.variant, r.profile) == (decision.variant, decision.profile)), None)
    if chosen is None:
        return f"Nothing can be recommended: {decision.reason}."
    cost = usd(chosen.cost_usd_per_million_queries)
    parts = [f"Deploy {chosen.variant} on {chosen.profile}: {cost} per million queries"]
    parts += _against(chosen, rows, baseline)
    back = _of(payback, chosen)
    if back and back.queries is not None:
        parts.append(f"; making it pays back after {count(back.queries)} queries")
    even = _of(break_even, chosen)
    if even and even.queries is not None:
        parts.append(f"; serving it costs more than making it did after {count(even.queries)}")
    return "".join([*parts, *_takeover(chosen, rows, decision)]) + "."


def _against(chosen: ServingCost, rows: Rows, baseline: str) -> list[str]:
    """Return how the choice compares with the baseline on its own profile, nothing where it is the baseline."""
    if chosen.variant == baseline:
        return []
    base = next((r for r in rows if (r.variant, r.profile) == (baseline, chosen.profile)), None)
    if base is None or not base.cost_usd_per_million_queries or not chosen.cost_usd_per_million_queries:
        return [f"; {baseline} on {chosen.profile} has no cost to hold it against"]
    factor = base.cost_usd_per_million_queries / chosen.cost_usd_per_million_queries
    kept = chosen.accuracy.value / base.accuracy.value
    return [f", {factor:.2g} times cheaper than {baseline}, with {kept:.1%} of its accuracy"]


def _takeover(chosen: ServingCost, rows: Rows, decision: Decision) -> list[str]:
    """Return which row with cheaper queries takes over at more traffic, and from where; nothing where none does."""
    for flip in decision.flips:
        other = next((row for row in rows if f"{row.variant} on {row.profile}" == flip.to), None)
        cheaper = other and (other.cost_usd_per_million_queries or 0.0) < (chosen.cost_usd_per_million_queries or 0.0)
        if flip.lever == "traffic" and flip.threshold and other and cheaper:
            cost = usd(other.cost_usd_per_million_queries)
            return [f"; from {figures3(flip.threshold)} queries/s on {flip.to} is cheaper, {cost} per million"]
    return []


def _of(crossings: Crossings, row: ServingCost) -> Crossing | None:
    return next((c for c in crossings if (c.variant, c.profile) == (row.variant, row.profile)), None)
