"""Training and serving under one roof: arithmetic done a second against the arithmetic that each byte of weights buys.

Intensities are upper bounds: only the weights' own traffic is counted (for training also gradients and AdamW's two
states), activations are taken to stay in cache. A training step moves 40 bytes a parameter in FP32: the weights are
read forward and backward, the gradient is written, and AdamW reads four arrays and writes three. A served batch reads
the variant's file once.
"""

from __future__ import annotations

import statistics
from typing import Any

import altair as alt

from report.charts.figure import MARGIN, Figure, colour, log_axis, table, tip
from report.evidence import Evidence
from report.words import figures3
from testbed.records import LoadTestRun, TrainingRun
from testbed.records.cost import CostReport

TRAINING_BYTES_PER_PARAMETER = 40


def roofline(report: CostReport, evidence: Evidence, names: list[str]) -> Figure | None:
    """Return achieved FLOP/s over FLOPs a byte, with the measured GEMM peak; None where no peak was measured."""
    peaks = [run.gemm_flops_per_s for run in evidence.training.values() if run.gemm_flops_per_s]
    if not peaks:
        return None
    served = [point for row in report.serving if (point := _served(row.variant, row.profile, evidence))]
    trained = [_trained(stage, run) for stage, run in evidence.training.items()]
    points = [*trained, *served]
    roof = _roof(report, max(peaks), [point["intensity"] for point in points])
    drawn = [*points, *roof]
    x_scale, x_axis = log_axis("FLOPs a byte of weights moved", [point["intensity"] for point in drawn], "~r")
    y_scale, y_axis = log_axis("GFLOP/s achieved", [point["gflops"] for point in drawn], "~r")
    x, y = alt.X("intensity:Q", scale=x_scale, axis=x_axis), alt.Y("gflops:Q", scale=y_scale, axis=y_axis)
    domain = [*names, *(f"training the {stage}" for stage in evidence.training)]
    dots = (
        alt.Chart(table(points))
        .mark_point(filled=True, size=150, opacity=0.95)
        .encode(
            x,
            y,
            colour(domain, title=None),
            shape=alt.Shape("where:N", legend=alt.Legend(title=None, orient="top")),
            tooltip=[tip("variant"), tip("where"), tip("intensity", number=".3r"), tip("gflops", "GFLOP/s", ".3r")],
        )
    )
    line = alt.Chart(table(roof)).mark_line(color="#CC3311", strokeDash=[4, 3]).encode(x=x, y=y)
    best = max(trained, key=lambda point: float(point["gflops"]))
    caption = (
        f"The red roof is the fastest matrix product that the training threads were measured to make, "
        f"{figures3(max(peaks) / 1e9)} GFLOP/s{_slope(report)}. {str(best['variant']).capitalize()} reaches "
        f"{best['gflops']:.3g}. Serving has one core where training has all, and small batches; INT8 counts its "
        "operations as if they were FLOPs. A point above the slope found its weights in a cache."
    )
    return Figure(
        name="roofline",
        title="Arithmetic achieved, in training and in serving",
        caption=caption,
        alt_text=f"Achieved arithmetic against arithmetic intensity, both logarithmic. {caption}",
        chart=line + dots,
    )


def _roof(report: CostReport, peak_flops_per_s: float, intensities: list[float]) -> list[dict[str, float]]:
    """Return the roof's corners: the memory's slope where its bandwidth was measured, up to the arithmetic peak."""
    low, high = min(intensities) / MARGIN, max(intensities) * MARGIN
    bandwidth = report.memory_bytes_per_s
    corner = peak_flops_per_s / bandwidth if bandwidth else low
    points = [{"intensity": max(low, corner), "gflops": peak_flops_per_s / 1e9}]
    if bandwidth and low < corner:
        points.insert(0, {"intensity": low, "gflops": low * bandwidth / 1e9})
    points.append({"intensity": max(high, corner * MARGIN), "gflops": peak_flops_per_s / 1e9})
    return points


def _slope(report: CostReport) -> str:
    if report.memory_bytes_per_s is None:
        return ""
    return f", and its slope what one thread reads from memory, {report.memory_bytes_per_s / 1e9:.3g} GB/s"


def _trained(stage: str, run: TrainingRun) -> dict[str, Any]:
    seconds = run.phases["train"].wall_s if "train" in run.phases else run.usage.wall_s
    bytes_a_step = TRAINING_BYTES_PER_PARAMETER * run.model.num_parameters
    return {
        "variant": f"training the {stage}",
        "where": "training",
        "intensity": run.model_flops / run.num_steps / bytes_a_step,
        "gflops": run.model_flops / seconds / 1e9,
    }


def _served(name: str, profile: str, evidence: Evidence) -> dict[str, Any] | None:
    """Return the row's busiest VALID run as a point, or None where its server counted no batches."""
    runs = [run for run in evidence.runs_of(name, profile).values() if _counts(run)]
    if not runs:
        return None
    run = max(runs, key=lambda each: each.num_ok / each.duration_s)
    variant = evidence.manifest.variant(name)
    flops_a_text = variant.flops_per_token * statistics.fmean(evidence.manifest.lengths)
    batch = run.server.mean_batch_texts if run.server and run.server.mean_batch_texts else 1.0
    return {
        "variant": name,
        "where": profile,
        "intensity": flops_a_text * batch / variant.size_bytes,
        "gflops": flops_a_text * run.num_ok / run.duration_s / 1e9,
    }


def _counts(run: LoadTestRun) -> bool:
    return run.valid and run.num_ok > 0 and run.duration_s > 0 and run.server is not None
