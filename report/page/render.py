"""Fills the page's template: figures, words and libraries inlined, so that it opens from disk without a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jinja2
import vl_convert

from report import words
from report.charts.figure import VEGA_LITE, Figure
from report.config import ReportConfig
from report.curves import Point
from report.page.whatif import levers, whatif_data
from testbed.records import BundleManifest, Interval, Machine
from testbed.records.cost import CostReport, Crossing, ServingCost

HERE = Path(__file__).parent
EXPOSE = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Tile:
    """One figure that stands out under the headline."""

    figure: str
    words: str


@dataclass(frozen=True)
class RowCrossings:
    """One row's break-even and payback; ``back`` is None for the baseline itself, ``precision`` for an FP32 variant."""

    row: ServingCost
    even: Crossing
    back: Crossing | None
    precision: Crossing | None

    @property
    def why(self) -> str:
        """Why a figure is missing, each reason once."""
        missing = [crossing for crossing in (self.even, self.back, self.precision) if crossing]
        reasons = [*(crossing.reason for crossing in missing), self.even.energy_reason]
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def render_page(
    report: CostReport,
    figures: list[Figure],
    *,
    config: ReportConfig,
    curves: dict[tuple[str, str], tuple[Point, ...]],
    records: list[str],
    manifest: BundleManifest,
) -> str:
    """Return the page as HTML text.

    Args:
        report: the verdict.
        figures: its charts, in any order; the template places them by name.
        config: where the what-if panel's levers start.
        curves: measured latency against load by row, for the panel's SLO lever.
        records: paths of the records it was read from, relative to the page.
        manifest: of the bundle, for the table of variants.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(words.FILTERS)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return environment.get_template("page.html.j2").render(
        report=report,
        machine=machine_words(report.machine),
        tiles=tiles(report),
        projected=any(row.price and row.price.basis == "projection" for row in report.serving),
        crossings=row_crossings(report),
        between=between(report),
        between_reasons=reasons(report.payback_between),
        training_reasons=list(
            dict.fromkeys(c.cost_interval_reason for c in report.training.values() if c.cost_interval_reason)
        ),
        manifest=manifest,
        figures={figure.name: figure for figure in figures},
        specs={figure.name: figure.spec() for figure in figures},
        records=records,
        levers=levers(report, config),
        whatif=whatif_data(report, config, curves),
        whatif_js=(HERE / "whatif.js").read_text(encoding="utf-8"),
        css=(HERE / "page.css").read_text(encoding="utf-8"),
        charts_js=(HERE / "charts.js").read_text(encoding="utf-8"),
        vega=vl_convert.javascript_bundle(snippet=EXPOSE, vl_version=VEGA_LITE),
    )


def between(report: CostReport) -> dict[str, dict[str, dict[str, Crossing]]]:
    """Return the payback of every variant against every other one: profile to variant to the other to the crossing."""
    found: dict[str, dict[str, dict[str, Crossing]]] = {}
    for crossing in report.payback_between:
        found.setdefault(crossing.profile, {}).setdefault(crossing.variant, {})[crossing.against] = crossing
    return found


def reasons(crossings: tuple[Crossing, ...]) -> list[str]:
    """Return why crossings are missing, or have no interval, each reason once; "never" speaks for itself."""
    missing = [c.reason for c in crossings if c.reason and not c.reason.startswith("never")]
    unbounded = [f"no interval: {c.interval_reason}" for c in crossings if c.interval_reason]
    return list(dict.fromkeys([*missing, *unbounded]))


def machine_words(machine: Machine) -> str:
    """Return the machine in a few words."""
    gpus = f", {', '.join(gpu.name for gpu in machine.gpus)}" if machine.gpus else ""
    return f"{machine.cpu_model}, {machine.usable_cores:g} cores{gpus}"


def row_crossings(report: CostReport) -> list[RowCrossings]:
    """Return each row with its crossings."""
    back = {(c.variant, c.profile): c for c in report.payback}
    even = {(c.variant, c.profile): c for c in report.break_even}
    precision = {(c.variant, c.profile): c for c in report.precision_payback}
    return [
        RowCrossings(
            row=row,
            even=even[row.variant, row.profile],
            back=back.get((row.variant, row.profile)),
            precision=precision.get((row.variant, row.profile)),
        )
        for row in report.serving
    ]


def tiles(report: CostReport) -> list[Tile]:
    """Return the figures that stand out; none where nothing is recommended."""
    decision = report.decision
    chosen = next(
        (
            c
            for c in row_crossings(report)
            if decision and (c.row.variant, c.row.profile) == (decision.variant, decision.profile)
        ),
        None,
    )
    if chosen is None or decision is None:
        return []
    row = chosen.row
    found = [
        Tile(
            words.usd(row.cost_usd_per_million_queries),
            f"per million queries, {row.variant} on {row.profile}{_bounds(row.cost_interval, words.usd)}",
        ),
        Tile(
            f"{row.max_qps_at_slo:.3g}/s",
            f"within the SLO{_bounds(row.qps_interval, words.figures3)}, p99 {words.milliseconds(row.latency_p99_s)}"
            f"{_bounds(row.latency_p99_interval, words.milliseconds)}",
        ),
        Tile(
            words.count(chosen.even.queries),
            f"queries until serving has cost more than training{_bounds(chosen.even.interval, words.count)}",
        ),
        Tile(
            f"{row.accuracy.value:.1%}",
            f"accuracy{_bounds(row.accuracy.interval, words.percent)}, on {row.accuracy.num_samples} unseen texts",
        ),
    ]
    if chosen.back and chosen.back.queries is not None:
        found.insert(
            3,
            Tile(
                words.count(chosen.back.queries),
                f"queries until it has paid back against {chosen.back.against}"
                f"{_bounds(chosen.back.interval, words.count)}",
            ),
        )
    if decision.replicas is not None:
        found.append(
            Tile(f"{decision.replicas} × {row.profile}", f"{words.usd(decision.usd_per_month)} a month at your traffic")
        )
    return found


def _bounds(interval: Interval | None, word: Callable[[float], str]) -> str:
    return f" ({word(interval.low)} – {word(interval.high)})" if interval else ""
