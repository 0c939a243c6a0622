"""Goodput beyond the capacity: does the server keep answering in time what it can, or does it collapse?"""

from __future__ import annotations

from typing import TypedDict

import altair as alt

from report.charts.figure import Figure, colour, table, tip
from report.evidence import Evidence
from testbed.records import LoadTestRun
from testbed.records.cost import CostReport

BEYOND = 1.15  # a confirming run sits at 1; only a run past this shows what overload does


class Point(TypedDict):
    """One open-loop run; loads are shares of the row's capacity, errors of its queries."""

    row: str
    variant: str
    offered: float
    goodput: float
    errors: float


def goodput_in_overload(report: CostReport, evidence: Evidence, names: list[str]) -> Figure | None:
    """Return goodput over offered load, both as shares of the capacity; None where nothing was run beyond it."""
    capacity = {(row.variant, row.profile): row.max_qps_at_slo for row in report.serving if row.max_qps_at_slo}
    values = [
        _point(run, best)
        for run in evidence.loads.values()
        if run.target_qps and run.scenario == "Server" and (best := capacity.get((run.variant, run.profile)))
    ]
    heaviest = max(values, key=lambda value: value["offered"], default=None)
    if heaviest is None or heaviest["offered"] < BEYOND:
        return None
    x = alt.X("offered:Q", axis=alt.Axis(title="offered load, times the capacity", format="~r"))
    y = alt.Y("goodput:Q", axis=alt.Axis(title="right answers within the SLO, times the capacity", format="~r"))
    tips = [tip("row"), tip("offered", number=".2r"), tip("goodput", number=".2r"), tip("errors", number=".1%")]
    base = alt.Chart(table([dict(value) for value in values]))
    lines = base.mark_line(strokeWidth=2).encode(x, y, colour(names), detail="row:N")
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(x, y, colour(names), tooltip=tips)
    ideal = [{"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 1.0}, {"x": float(heaviest["offered"]), "y": 1.0}]
    reference = alt.Chart(table(ideal)).mark_line(color="#888888", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q")
    caption = (
        f"At {heaviest['offered']:.2g} times its capacity {heaviest['row']} still answers "
        f"{heaviest['goodput']:.0%} of its capacity in time. The dashed line is a server that sheds exactly what is "
        "too much; a late answer and an error both count as a miss."
    )
    return Figure(
        name="overload",
        title="Goodput in overload",
        caption=caption,
        alt_text=f"Goodput against offered load. {caption}",
        chart=reference + lines + dots,
    )


def _point(run: LoadTestRun, capacity_qps: float) -> Point:
    assert run.target_qps is not None
    return {
        "row": f"{run.variant} on {run.profile}",
        "variant": run.variant,
        "offered": run.target_qps / capacity_qps,
        "goodput": run.goodput_qps / capacity_qps,
        "errors": sum(run.errors.values()) / run.num_sent if run.num_sent else 0.0,
    }
