"""The simulation against the load tests: predicted p50 and p99 over measured ones."""

from __future__ import annotations

from typing import Any

import altair as alt

from report.charts.figure import Figure, log_axis, table, tip
from testbed.records.cost import CostReport
from testbed.records.fleet import SimulationCheck

WITHIN = 0.15


def simulated_against_measured(report: CostReport) -> Figure | None:
    """Return measured and simulated latencies over load; None where nothing could be simulated."""
    checks = report.simulation
    if not checks:
        return None
    values = [value for check in checks for value in _values(check)]
    x = alt.X("load:Q", axis=alt.Axis(title="offered load, queries/s", format="~r"))
    y_scale, y_axis = log_axis("latency, ms", [value["ms"] for value in values], "~r")
    y = alt.Y("ms:Q", scale=y_scale, axis=y_axis)
    shade = alt.Color(
        "percentile:N",
        scale=alt.Scale(domain=["p50", "p99"], range=["#0077BB", "#EE7733"]),
        legend=alt.Legend(title=None, orient="top"),
    )
    base = alt.Chart(table(values))
    tips = [tip("percentile"), tip("how"), tip("load", "queries/s", ".4r"), tip("ms", number=".3r")]
    joined = alt.Y("mean(ms):Q", scale=y_scale, axis=y_axis)
    lines = base.transform_filter("datum.how == 'simulated'").mark_line(strokeWidth=2)
    lines = lines.encode(x, joined, shade)
    shape = alt.Shape(
        "how:N",
        scale=alt.Scale(domain=["measured", "simulated", "predicted"], range=["circle", "diamond", "triangle"]),
        legend=alt.Legend(title=None, orient="top"),
    )
    bars = base.transform_filter("isValid(datum.high_ms)").mark_rule(opacity=0.6)
    bars = bars.encode(x, alt.Y("low_ms:Q", scale=y_scale, axis=y_axis), shade, y2="high_ms:Q")
    dots = base.mark_point(size=80, strokeWidth=2, opacity=1).encode(x, y, shade, shape=shape, tooltip=tips)
    caption = sentence(checks)
    return Figure(
        name="simulation",
        title="Can the latencies be predicted from batch times alone?",
        caption=caption,
        alt_text=f"Measured and simulated latency over load. {caption}",
        chart=lines + bars + dots,
    )


def sentence(checks: tuple[SimulationCheck, ...]) -> str:
    """Return how close the simulation came, in words."""
    inside = [check for check in checks if abs(check.p50_error) <= WITHIN and abs(check.p99_error) <= WITHIN]
    excused = [check for check in checks if abs(check.p99_error) > WITHIN and is_within_interval(check)]
    worst = max(checks, key=lambda check: abs(check.p99_error))
    drift = max(checks, key=lambda check: abs(check.predicted_p50_error))
    also = f" ({len(excused)} more inside the measured p99's own 95 % interval)" if excused else ""
    return (
        f"Each load test simulated with its own arrivals, texts and batch times: p50 and p99 are within {WITHIN:.0%} "
        f"for {len(inside)} of {len(checks)} runs{also}; bars are 95 % intervals of what was measured. The worst p99 "
        f"is off by {worst.p99_error:+.0%}, at {worst.target_qps:,.0f} queries/s. With the batch times of the other "
        "tests instead, which also shows how steady the machine was, p50 is off by up to "
        f"{drift.predicted_p50_error:+.0%}."
    )


def is_within_interval(check: SimulationCheck) -> bool:
    """Return whether the simulated p99 lies in the measured one's interval."""
    interval = check.measured_p99_interval
    return interval is not None and interval.low <= check.simulated_p99_s <= interval.high


def _values(check: SimulationCheck) -> list[dict[str, Any]]:
    around = {"p50": check.measured_p50_interval, "p99": check.measured_p99_interval}
    figures = {
        ("p50", "measured"): check.measured_p50_s,
        ("p99", "measured"): check.measured_p99_s,
        ("p50", "simulated"): check.simulated_p50_s,
        ("p99", "simulated"): check.simulated_p99_s,
        ("p50", "predicted"): check.predicted_p50_s,
        ("p99", "predicted"): check.predicted_p99_s,
    }
    return [
        {
            "load": check.target_qps,
            "percentile": percentile,
            "how": how,
            "ms": seconds * 1000,
            "low_ms": interval.low * 1000 if (interval := around[percentile]) and how == "measured" else None,
            "high_ms": interval.high * 1000 if interval and how == "measured" else None,
        }
        for (percentile, how), seconds in figures.items()
    ]
