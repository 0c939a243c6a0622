"""Goodput beyond the capacity: does the server keep answering in time what it can, or does it collapse?"""

from __future__ import annotations

import altair as alt

from report.charts.figure import Figure, colour, table, tip
from report.evidence import Evidence
from testbed.records import OverloadPoint, OverloadReport


def goodput_in_overload(evidence: Evidence, names: list[str]) -> Figure | None:
    """Return goodput over offered load, both as multiples of the peak; None where no overload was tested."""
    if not evidence.overloads:
        return None
    values = [_value(report, point) for report in evidence.overloads for point in report.points]
    most = max(point.factor for report in evidence.overloads for point in report.points)
    x = alt.X("offered:Q", axis=alt.Axis(title="offered load, times the capacity", format="~r"))
    y = alt.Y("goodput:Q", axis=alt.Axis(title="right answers within the SLO, times the capacity", format="~r"))
    tips = [
        tip("row"),
        tip("offered", "times the capacity", ".3r"),
        tip("goodput", "in time, times the capacity", ".3r"),
        tip("errors", "refused or failed", ".1%"),
        tip("recovery", "seconds to recover", ".2r"),
    ]
    base = alt.Chart(table(values))
    lines = base.mark_line(strokeWidth=2).encode(x, y, colour(names), detail="row:N")
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(x, y, colour(names), tooltip=tips)
    ideal = [{"x": 0.0, "y": 0.0}, {"x": 1.0, "y": 1.0}, {"x": most, "y": 1.0}]
    reference = alt.Chart(table(ideal)).mark_line(color="#888888", strokeDash=[4, 4]).encode(x="x:Q", y="y:Q")
    caption = " ".join(_sentence(report) for report in evidence.overloads)
    return Figure(
        name="overload",
        title="Goodput in overload",
        caption=f"{caption} The dashed line is a server that sheds exactly what is too much; late answers and refusals "
        "are both misses.",
        alt_text=f"Goodput against offered load beyond the capacity. {caption}",
        chart=reference + lines + dots,
    )


def _value(report: OverloadReport, point: OverloadPoint) -> dict[str, object]:
    return {
        "row": f"{report.variant} on {report.profile}",
        "variant": report.variant,
        "offered": point.offered_qps / report.peak_qps,
        "goodput": point.goodput_qps / report.peak_qps,
        "errors": point.error_rate,
        "recovery": point.recovery_s,
    }


def _sentence(report: OverloadReport) -> str:
    worst = max(report.points, key=lambda point: point.factor)
    kept = worst.goodput_qps / report.peak_qps
    back = "never while it was watched" if worst.recovery_s is None else f"after {worst.recovery_s:.2g} s"
    shed = ", ".join(f"{count} {reason}" for reason, count in worst.shed.items()) or "nothing"
    return (
        f"At {worst.factor:g} times its capacity {report.variant} on {report.profile} answers {kept:.0%} of it in time "
        f"(shed: {shed}), and is itself again {back}."
    )
