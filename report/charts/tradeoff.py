"""Accuracy against cost, and which rows nothing beats."""

from __future__ import annotations

import altair as alt

from report.charts.figure import Figure, colour, log_axis, table, tip
from testbed.records.cost import CostReport, ServingCost


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
            "alone_ms": row.single_stream_p50_s * 1000 if row.single_stream_p50_s else None,
        }
        for row in rows
    ]
    y_scale = alt.Scale(zero=False, padding=8)
    x_scale, x_axis = log_axis("usd per million queries", [row.cost_usd_per_million_queries for row in rows], "$~r")
    x = alt.X("usd:Q", scale=x_scale, axis=x_axis)
    y = alt.Y("accuracy:Q", scale=y_scale, axis=alt.Axis(title="accuracy on the test split", format=".1%"))
    base = alt.Chart(table(values))
    bars = base.mark_rule(strokeWidth=1.5, opacity=0.55).encode(
        x=x, y=alt.Y("low:Q", scale=y_scale), y2="high:Q", color=colour(names)
    )
    size = alt.Size(
        "alone_ms:Q",
        scale=alt.Scale(range=[60, 420]),
        legend=alt.Legend(title="p50 alone, ms", orient="top", tickCount=3),
    )
    tips = [
        tip("row"),
        tip("usd", number="$.4r"),
        tip("accuracy", number=".2%"),
        tip("alone_ms", "ms alone, p50", ".3r"),
    ]
    points = base.mark_point(filled=True, opacity=0.95).encode(
        x=x,
        y=y,
        color=colour(names),
        shape=alt.Shape("profile:N", legend=alt.Legend(orient="top")),
        size=size,
        tooltip=tips,
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
