"""Cumulative cost against queries, with the crossings marked."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np

from report import model
from report.charts.figure import Figure, colour, log_axis, table, tip
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
    lines: list[dict[str, Any]] = [
        {"variant": row.variant, "queries": float(n), "usd": model.total(_made(row), _per_query(row), float(n))}
        for row in rows
        for n in queries
    ]
    x_scale, x_axis = log_axis("queries served", queries.tolist(), "~s")
    y_scale, y_axis = log_axis("usd spent, training included", [line["usd"] for line in lines], "$~r")
    x, y = alt.X("queries:Q", scale=x_scale, axis=x_axis), alt.Y("usd:Q", scale=y_scale, axis=y_axis)
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
    shown = [mark for mark in marks if mark["variant"] == _chosen(report)]
    labels = (
        alt.Chart(table(shown))
        .mark_text(fontSize=11, dy=alt.expr("datum.what == 'payback' ? 18 : -14"))
        .encode(x=x, y=y, text="label:N", color=colour(names))
    )
    return Figure(
        name="cumulative-cost",
        title=f"What has been spent after so many queries ({profile})",
        caption=_caption(report, profile),
        alt_text=f"Total cost against queries served, both logarithmic, a line a variant. {_caption(report, profile)}",
        chart=chart + points + labels,
    )


def _chosen(report: CostReport) -> str | None:
    """Return the variant whose crossings are labelled; those of the others are in the tooltips and in the table."""
    return report.decision.variant if report.decision else None


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
    made = [f"{r.variant} {usd(r.one_time.total_usd)}" for r in report.serving if r.one_time and r.profile == profile]
    return (
        f"Each line starts at what the variant cost to make ({', '.join(made)}). Serving overtakes it after so many "
        f"queries: {_told(report.break_even, profile)}. Against the baseline it pays back after: "
        f"{_told(report.payback, profile)}."
    )


def _told(crossings: tuple[Crossing, ...], profile: str) -> str:
    """Return the crossings of a profile in words; one that is not known is not the same as never."""
    told = []
    for crossing in crossings:
        if crossing.profile == profile:
            never = (crossing.reason or "").startswith("never")
            told.append(
                f"{crossing.variant} {'never' if never else count(crossing.queries) if crossing.queries else 'unknown'}"
            )
    return ", ".join(told) or "nothing to compare"
