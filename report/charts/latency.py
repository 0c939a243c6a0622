"""Latency against offered load, every run a point, the SLO a line."""

from __future__ import annotations

from typing import Any

import altair as alt

from report.charts.figure import Figure, colour, log_axis, table, tip
from report.evidence import Evidence
from testbed.records import LoadTestRun


def latency_against_load(evidence: Evidence, slo_s: float, names: list[str]) -> Figure | None:
    """Return p99 latency over offered load of all open-loop runs and probes, or None where there is none."""
    steady = [run for row in evidence.rows() for run in evidence.steady_runs_of(*row).values()]
    points = [_point(run) for run in steady if run.target_qps and run.latency] + _probes(evidence)
    if not points:
        return None
    x_scale, x_axis = log_axis("offered load, queries/s", [point["qps"] for point in points], "~r")
    drawn = [slo_s * 1000, *(point[name] for point in points for name in ("p99_ms", "low_ms", "high_ms"))]
    y_scale, y_axis = log_axis("p99 latency, ms", drawn, "~r")
    x, y = alt.X("qps:Q", scale=x_scale, axis=x_axis), alt.Y("p99_ms:Q", scale=y_scale, axis=y_axis)
    dash = alt.StrokeDash("profile:N", legend=alt.Legend(title="profile", orient="top"))
    base = alt.Chart(table(points))
    lines = base.transform_filter("!datum.probe").mark_line(strokeWidth=2).encode(x, y, colour(names), dash)
    tips = [
        tip("variant"),
        tip("profile"),
        tip("qps", "offered, queries/s", ".4r"),
        tip("p50_ms", "p50, ms", ".3r"),
        tip("p99_ms", "p99, ms", ".3r"),
        tip("verdict"),
    ]
    faint = alt.condition("datum.probe", alt.value(0.3), alt.value(1.0))
    dots = base.mark_point(size=55).encode(
        x,
        y,
        colour(names),
        shape=alt.Shape(
            "verdict:N",
            scale=alt.Scale(domain=["VALID", "INVALID"], range=["circle", "cross"]),
            legend=alt.Legend(title=None, orient="top"),
        ),
        opacity=faint,
        tooltip=tips,
    )
    bars = base.transform_filter("isValid(datum.high_ms)").mark_rule(opacity=0.5)
    bars = bars.encode(x=x, y=alt.Y("low_ms:Q"), y2="high_ms:Q", color=colour(names))
    rule = alt.Chart(table([{"slo_ms": slo_s * 1000}])).mark_rule(color="#CC3311", strokeDash=[2, 3], size=1.5)
    return Figure(
        name="latency-against-load",
        title="Latency against offered load",
        caption="Open loop: latency counts from the scheduled time, so a slow server cannot slow the clock. The red "
        f"line is the SLO of {slo_s * 1000:g} ms; a cross is INVALID, a faint point a short probe of the search.",
        alt_text="p99 latency against offered load, both logarithmic; each variant rises steeply at its capacity.",
        chart=lines + bars + dots + rule.encode(y="slo_ms:Q"),
    )


def _point(run: LoadTestRun) -> dict[str, Any]:
    assert run.latency is not None
    p99 = run.latency.quantiles["p99"]
    return {
        "variant": run.variant,
        "profile": run.profile,
        "qps": run.target_qps,
        "p50_ms": run.latency.quantiles["p50"].value_s * 1000,
        "p99_ms": p99.value_s * 1000,
        "low_ms": p99.interval.low * 1000 if p99.interval else None,
        "high_ms": p99.interval.high * 1000 if p99.interval else None,
        "verdict": "VALID" if run.valid else "INVALID",
        "probe": False,
    }


def _probes(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        {
            "variant": capacity.variant,
            "profile": capacity.profile,
            "qps": probe.target_qps,
            "p99_ms": probe.p99_s * 1000,
            "low_ms": None,
            "high_ms": None,
            "verdict": "VALID" if probe.valid else "INVALID",
            "probe": True,
        }
        for capacity in evidence.capacities.values()
        for probe in capacity.probes
        if probe.p99_s
    ]
