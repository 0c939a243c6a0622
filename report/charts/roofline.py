"""Training and serving under one roof: arithmetic done a second against the arithmetic that each moved byte buys."""

from __future__ import annotations

import altair as alt

from report.charts.figure import MARGIN, Figure, colour, log_axis, table, tip
from report.evidence import Evidence
from report.words import figures3
from testbed.records.cost import CostReport


def roofline(report: CostReport, evidence: Evidence, names: list[str]) -> Figure | None:
    """Return achieved FLOP/s over FLOPs a byte under the measured roof; None where nothing was placed."""
    if not report.roofline:
        return None
    points = [
        {
            "variant": point.name,
            "where": point.where,
            "intensity": point.flops_per_byte,
            "gflops": point.flops_per_s / 1e9,
            "bound": point.bound or "not known",
        }
        for point in report.roofline
    ]
    roof = _roof(report, [point.flops_per_byte for point in report.roofline])
    heights = [point.flops_per_s / 1e9 for point in report.roofline] + [corner["gflops"] for corner in roof]
    x_scale, x_axis = log_axis(
        "FLOPs a byte moved, weights and activations", [*(point.flops_per_byte for point in report.roofline)], "~r"
    )
    y_scale, y_axis = log_axis("GFLOP/s achieved", heights, "~r")
    x, y = alt.X("intensity:Q", scale=x_scale, axis=x_axis), alt.Y("gflops:Q", scale=y_scale, axis=y_axis)
    domain = [*(f"training the {stage}" for stage in evidence.training), *names]
    dots = (
        alt.Chart(table(points))
        .mark_point(filled=True, size=140, opacity=0.95)
        .encode(
            x,
            y,
            colour(domain, title=None),
            shape=alt.Shape("where:N", legend=alt.Legend(title=None, orient="top")),
            tooltip=[
                tip("variant"),
                tip("where"),
                tip("bound"),
                tip("intensity", number=".3r"),
                tip("gflops", "GFLOP/s", ".3r"),
            ],
        )
    )
    line = alt.Chart(table(roof)).mark_line(color="#CC3311", strokeDash=[4, 3], clip=True).encode(x=x, y=y)
    caption = _caption(report)
    return Figure(
        name="roofline",
        title="Arithmetic achieved, in training and in serving, and what bounds it",
        caption=caption,
        alt_text=f"Achieved arithmetic against arithmetic intensity, both logarithmic. {caption}",
        chart=line + dots if roof else dots,
    )


def _caption(report: CostReport) -> str:
    bounds: dict[str, set[str]] = {}
    for point in report.roofline:
        bounds.setdefault(point.name, set()).add(point.bound or "not known")
    of_bound: dict[str, list[str]] = {}
    for point in report.roofline:
        # Named once where all its points are bound alike.
        name = point.name if len(bounds[point.name]) == 1 else f"{point.name} ({point.where})"
        names = of_bound.setdefault(point.bound or "not known", [])
        if name not in names:
            names.append(name)
    verdicts = "; ".join(f"bound by {bound}: {', '.join(names)}" for bound, names in of_bound.items())
    verdicts = verdicts[:1].upper() + verdicts[1:]
    roof = ""
    if report.gemm_flops_per_s and report.memory_bytes_per_s:
        roof = (
            f"The red roof is one thread's: {figures3(report.gemm_flops_per_s / 1e9)} GFLOP/s of FP32 products and "
            f"{figures3(report.memory_bytes_per_s / 1e9)} GB/s of memory, measured when the report was made. "
        )
    return (
        f"{roof}{verdicts}. Training has all threads, and its own precision, so it may stand above the roof; INT8 "
        "counts its operations as if they were FLOPs. A point above the slope found its weights in a cache."
    )


def _roof(report: CostReport, intensities: list[float]) -> list[dict[str, float]]:
    """Return the roof's corners, or none where the ceilings were not measured."""
    peak, bandwidth = report.gemm_flops_per_s, report.memory_bytes_per_s
    if not peak or not bandwidth:
        return []
    low, high = min(intensities) / MARGIN, max(intensities) * MARGIN
    corners = [low, min(max(low, peak / bandwidth), high), high]
    return [{"intensity": each, "gflops": min(peak, each * bandwidth) / 1e9} for each in corners]
