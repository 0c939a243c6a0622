"""The cost of a query after each step of the ablation: a falling staircase, each step's factor on it."""

from __future__ import annotations

import altair as alt

from report.charts.figure import BAR_HEIGHT, Figure, table, tip
from report.words import usd
from testbed.records.cost import CostReport, Step

ROOM = 1.2  # for the last label
FIRST, CHEAPER, DEARER = "#888888", "#009988", "#CC3311"


def staircase(report: CostReport, profile: str) -> Figure | None:
    """Return the waterfall of one profile, or None where its steps were not measured."""
    steps = report.ablation.get(profile)
    if not steps:
        return None
    values = [_bar(before, step) for before, step in zip((None, *steps), steps, strict=False)]
    two_lines = alt.Axis(title=None, labelFontSize=13, labelLimit=170, labelExpr="split(datum.label, '|')")
    y = alt.Y("step:N", sort=[_label(step) for step in steps], axis=two_lines)
    room = alt.Scale(domain=[0, ROOM * max(step.usd_per_million_queries for step in steps)], nice=False)
    base = alt.Chart(table(values))
    bars = base.mark_bar(height={"band": 0.58}, cornerRadius=2).encode(
        x=alt.X("bottom:Q", scale=room, axis=alt.Axis(title="usd per million queries", format="$~r")),
        x2="top:Q",
        y=y,
        color=alt.Color("colour:N", scale=None),
        tooltip=[tip("step"), tip("factor", "times cheaper", ".3r"), tip("qps", "queries/s", ".4r")],
    )
    labels = base.mark_text(dx=6, fontSize=12, align="left").encode(x=alt.X("top:Q", scale=room), y=y, text="label:N")
    told = ", ".join(f"{step.name} {step.factor:.3g}×" for step in steps[1:])
    whole = steps[0].usd_per_million_queries / steps[-1].usd_per_million_queries
    dear, cheap = usd(steps[0].usd_per_million_queries), usd(steps[-1].usd_per_million_queries)
    caption = (
        f"From {dear} to {cheap} per million queries on {profile}, {whole:.3g}× in all: {told}. One at a time, a query "
        "costs as long as it takes; the last step serves as many at once as the SLO allows under random arrivals, and "
        "so pays for the idle time it needs."
    )
    return Figure(
        name=f"staircase-{profile}",
        title=f"Where the saving comes from ({profile})",
        caption=caption,
        alt_text=f"Bars of the cost of a query after each step. {caption}",
        chart=bars + labels,
        height=BAR_HEIGHT * len(steps),
    )


def _bar(before: Step | None, step: Step) -> dict[str, object]:
    after = step.usd_per_million_queries
    top, bottom = (after, 0.0) if before is None else (before.usd_per_million_queries, after)
    return {
        "step": _label(step),
        "top": max(top, bottom),
        "bottom": min(top, bottom),
        "qps": step.qps,
        "factor": step.factor,
        "label": "" if before is None else f"{step.factor:.3g}×",
        "colour": FIRST if before is None else CHEAPER if step.factor >= 1 else DEARER,
    }


def _label(step: Step) -> str:
    """Return the step's name and cost, as the two lines of an axis label."""
    return f"{step.name}|{usd(step.usd_per_million_queries)}"
