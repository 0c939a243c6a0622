"""The verdict as Markdown, short enough for a pull request."""

from __future__ import annotations

from collections.abc import Callable

from report import words
from report.charts.figure import Figure
from testbed.records import BundleManifest, Interval
from testbed.records.cost import CostReport, Crossing

SERVING_HEAD = (
    "| variant | profile | usd / M queries | queries/s at SLO | p50 | p99 | accuracy | J / query | size | verdict |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
)
VARIANT_HEAD = (
    "| variant | accuracy (95 %) | from its parent, points (95 %) | flips | size | speed × FP32 (95 %) | ISA |",
    "|---|--:|--:|--:|--:|--:|---|",
)
STAGE_HEAD = ("| stage | usd | time | energy | accuracy |", "|---|--:|--:|--:|--:|")
CROSSING_HEAD = (
    "| variant | profile | cost to make | break-even, queries | payback, queries | precision alone | why not |",
    "|---|---|--:|--:|--:|--:|---|",
)


def render_markdown(report: CostReport, figures: list[Figure], *, manifest: BundleManifest) -> str:
    """Return the report as Markdown: headline, tables, charts by name, assumptions."""
    slo = f"p{report.slo_percentile:g} ≤ {words.milliseconds(report.slo_s)}"
    machine = f"{report.machine.cpu_model}, {report.machine.usable_cores:g} cores"
    lines = [f"# {report.experiment}: what it costs to train and to serve", "", f"**{report.headline}**", ""]
    lines += [f"Measured on {machine}; SLO {slo}.", "", "## Serving", "", *SERVING_HEAD, *_serving(report), ""]
    lines += ["## Variants", "", *VARIANT_HEAD, *_variants(manifest), ""]
    lines += ["## Break-even and payback", "", *CROSSING_HEAD, *_crossings(report), ""]
    lines += ["## Training", "", *STAGE_HEAD, *_stages(report), ""]
    if report.decision:
        lines += ["## Decision", "", f"{report.decision.reason}.", ""]
        lines += [f"- {loser.variant} on {loser.profile}: {loser.reason}" for loser in report.decision.losers]
        lines += [f"- {flip.sentence}" for flip in report.decision.flips] + [""]
    for figure in figures:
        lines += [f"## {figure.title}", "", f"![{figure.title}](charts/{figure.name}.svg)", "", figure.caption, ""]
    lines += ["## Taken for granted", "", *(f"- {line}" for line in report.assumptions)]
    return "\n".join(lines).rstrip() + "\n"


def _serving(report: CostReport) -> list[str]:
    return [
        _row(
            row.variant,
            row.profile,
            words.usd(row.cost_usd_per_million_queries),
            words.figures3(row.max_qps_at_slo),
            words.milliseconds(row.latency_p50_s),
            words.milliseconds(row.latency_p99_s),
            words.percent(row.accuracy.value),
            f"{words.figures3(row.energy_j_per_query)} ({row.energy_method or 'not measured'})",
            words.bytes_(row.size_bytes),
            "VALID" if row.valid else f"INVALID: {'; '.join(row.invalid_reasons)}",
        )
        for row in report.serving
    ]


def _variants(manifest: BundleManifest) -> list[str]:
    lines = []
    for variant in manifest.variants:
        checked, speed = variant.verification, variant.speed
        right, moved = checked.accuracy, checked.difference_interval
        ratio = "–"
        if speed:
            around = speed.ratio_interval
            ratio = f"{speed.ratio_to_fp32:.2f} ({around.low:.2f} – {around.high:.2f})"
        lines.append(
            _row(
                variant.name,
                f"{words.percent(right.value)} ({_around(right.interval, words.percent)})",
                f"{words.points(checked.accuracy_difference)} ({_around(moved, words.points)})",
                words.percent(checked.batch_flip_rate),
                words.bytes_(variant.size_bytes),
                ratio,
                words.isa(variant.isa) + (f"; {variant.warning}" if variant.warning else ""),
            )
        )
    return [*lines, *(_row(refused.name, f"refused: {refused.reason}", *[""] * 5) for refused in manifest.refused)]


def _around(interval: Interval, word: Callable[[float], str]) -> str:
    return f"{word(interval.low)} – {word(interval.high)}"


def _stages(report: CostReport) -> list[str]:
    return [
        _row(
            name,
            words.usd(cost.cost_usd),
            words.duration(cost.wall_s),
            f"{words.energy(cost.energy_j)} ({cost.energy_method or 'not measured'})",
            words.percent(cost.accuracy.value if cost.accuracy else None),
        )
        for name, cost in report.training.items()
    ]


def _crossings(report: CostReport) -> list[str]:
    back = {(c.variant, c.profile): c for c in report.payback}
    precision = {(c.variant, c.profile): c for c in report.precision_payback}
    rows = {(row.variant, row.profile): row for row in report.serving}
    lines = []
    for even in report.break_even:
        key = (even.variant, even.profile)
        made, paid, alone = rows[key].one_time, back.get(key), precision.get(key)
        reasons = [c.reason for c in (even, paid, alone) if c and c.reason]
        lines.append(
            _row(
                *key,
                words.usd(made.total_usd if made else None),
                _queries(even),
                _queries(paid) if paid else "baseline",
                _queries(alone) if alone else "–",
                "; ".join(dict.fromkeys(reasons)),
            )
        )
    return lines


def _queries(crossing: Crossing) -> str:
    text = words.count(crossing.queries)
    bounds = crossing.interval
    return f"{text} ({words.count(bounds.low)} – {words.count(bounds.high)})" if bounds else text


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
