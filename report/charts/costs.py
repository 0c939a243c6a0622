"""Cumulative cost against queries with the crossings marked, and accuracy against cost."""

from __future__ import annotations

import altair as alt
import numpy as np

from report import model
from report.charts.figure import Figure, colour, table, tip
from report.words import count, usd
from testbed.records.cost import CostReport, Crossing, ServingCost

NUM_POINTS = 61


def cumulative_cost(report: CostReport, profile: str, names: list[str]) -> Figure | None:
    """Return total cost over queries of every row of a profile that has one, or None where none has."""
    rows = [row for row in report.serving if row.profile == profile and row.cost_usd_per_million_queries]
    rows = [row for row in rows if row.one_time]
    if not rows:
        return None
    marks = [mark for row in rows for mark in _marks(row, report)]
    top = max([c.queries for c in (*report.break_even, *report.payback) if c.queries and c.profile == profile] or [1e6])
    queries = np.logspace(3, np.ceil(np.log10(top * 30)), NUM_POINTS)
    lines = [
        {"variant": row.variant, "queries": float(n), "usd": model.total(_made(row), _per_query(row), float(n))}
        for row in rows
        for n in queries
    ]
    x = alt.X("queries:Q", scale=alt.Scale(type="log"), axis=alt.Axis(title="queries served", format="~s", tickCount=8))
    y = alt.Y("usd:Q", scale=alt.Scale(type="log"), axis=alt.Axis(title="usd spent, training included", format="$~r"))
    tips = [tip("variant"), tip("queries", number=",.3s"), tip("usd", number="$,.4r")]
    chart = alt.Chart(table(lines)).mark_line(strokeWidth=2.5).encode(x, y, colour(names), tooltip=tips)
    points = (
        alt.Chart(table(marks))
        .mark_point(filled=True, size=110, opacity=1)
        .encode(
            x=x,
            y=y,
            color=colour(names),
            shape=alt.Shape("what:N", legend=alt.Legend(title=None, orient="top")),
            tooltip=[tip("variant"), tip("what"), tip("label", "queries")],
        )
    )
    labels = (
        alt.Chart(table(marks)).mark_text(dy=-14, fontSize=11).encode(x=x, y=y, text="label:N", color=colour(names))
    )
    return Figure(
        name="cumulative-cost",
        title=f"What has been spent after so many queries ({profile})",
        caption=_caption(report, profile),
        alt_text=f"Total cost against queries served, both logarithmic, a line a variant. {_caption(report, profile)}",
        chart=chart + points + labels,
    )


def accuracy_against_cost(report: CostReport, names: list[str]) -> Figure | None:
    """Return accuracy with its interval over cost a million queries; the rows that nothing beats are joined."""
    rows = [row for row in report.serving if row.cost_usd_per_million_queries]
    if not rows:
        return None
    front = pareto(rows)
    values = [
        {
            "row": f"{row.variant} · {row.profile}",
            "variant": row.variant,
            "profile": row.profile,
            "usd": row.cost_usd_per_million_queries,
            "accuracy": row.accuracy.value,
            "low": row.accuracy.interval.low,
            "high": row.accuracy.interval.high,
            "front": row in front,
        }
        for row in rows
    ]
    y_scale = alt.Scale(zero=False, padding=8)
    x = alt.X(
        "usd:Q", scale=alt.Scale(type="log", padding=30), axis=alt.Axis(title="usd per million queries", format="$~r")
    )
    y = alt.Y("accuracy:Q", scale=y_scale, axis=alt.Axis(title="accuracy on the test split", format=".1%"))
    base = alt.Chart(table(values))
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.55).encode(
        x=x, y=alt.Y("low:Q", scale=y_scale), y2="high:Q", color=colour(names)
    )
    tips = [tip("row"), tip("usd", number="$.4r"), tip("accuracy", number=".2%")]
    points = base.mark_point(filled=True, size=140, opacity=1).encode(
        x=x, y=y, color=colour(names), shape=alt.Shape("profile:N", legend=alt.Legend(orient="top")), tooltip=tips
    )
    joined = base.transform_filter("datum.front").mark_line(strokeDash=[4, 4], color="#888888", opacity=0.8)
    floor = report.decision.accuracy_floor if report.decision else None
    rule = alt.Chart(table([{"floor": floor}] if floor else [])).mark_rule(color="#CC3311", strokeDash=[2, 3])
    told = ", ".join(f"{row.variant} on {row.profile}" for row in front)
    return Figure(
        name="accuracy-against-cost",
        title="What accuracy costs",
        caption=f"Nothing is both cheaper and more accurate than {told} (joined). Bars are 95 % intervals; the red "
        f"line is the accuracy floor{f' of {floor:.3f}' if floor else ''}.",
        alt_text=f"Accuracy against cost per million queries. On the Pareto front: {told}.",
        chart=joined.encode(x=x, y=y) + rule.encode(y=alt.Y("floor:Q", scale=y_scale)) + bars + points,
    )


def pareto(rows: list[ServingCost]) -> list[ServingCost]:
    """Return the rows that no other beats in both cost and accuracy, from cheap to dear."""
    ranked = sorted(rows, key=lambda row: (row.cost_usd_per_million_queries or 0.0, -row.accuracy.value))
    front: list[ServingCost] = []
    for row in ranked:
        if not front or row.accuracy.value > front[-1].accuracy.value:
            front.append(row)
    return front


def _made(row: ServingCost) -> float:
    assert row.one_time is not None
    return row.one_time.total_usd


def _per_query(row: ServingCost) -> float:
    assert row.cost_usd_per_million_queries is not None
    return row.cost_usd_per_million_queries / 1e6


def _marks(row: ServingCost, report: CostReport) -> list[dict[str, object]]:
    found = []
    for what, crossings in (("break-even", report.break_even), ("payback", report.payback)):
        crossing = _crossing(row, crossings)
        if crossing and crossing.queries:
            spent = model.total(_made(row), _per_query(row), crossing.queries)
            found.append(
                {
                    "variant": row.variant,
                    "what": what,
                    "queries": crossing.queries,
                    "usd": spent,
                    "label": count(crossing.queries),
                }
            )
    return found


def _crossing(row: ServingCost, crossings: tuple[Crossing, ...]) -> Crossing | None:
    return next((c for c in crossings if (c.variant, c.profile) == (row.variant, row.profile)), None)


def _caption(report: CostReport, profile: str) -> str:
    even = [f"{c.variant} {count(c.queries)}" for c in report.break_even if c.queries and c.profile == profile]
    back = [f"{c.variant} {count(c.queries)}" for c in report.payback if c.queries and c.profile == profile]
    made = [f"{r.variant} {usd(r.one_time.total_usd)}" for r in report.serving if r.one_time and r.profile == profile]
    return (
        f"Each line starts at what the variant cost to make ({', '.join(made)}). Serving overtakes it after: "
        f"{', '.join(even) or 'never'} queries. Against the baseline it pays back after: {', '.join(back) or 'never'}."
    )
