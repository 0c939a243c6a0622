"""Turns a run's records into the verdict: `report.json` for programs, `report.md` for people, `index.html` to enjoy."""

from __future__ import annotations

from pathlib import Path

from report.charts.costs import accuracy_against_cost, cumulative_cost
from report.charts.figure import Figure
from report.charts.latency import latency_against_load
from report.charts.training import step_split
from report.config import ReportConfig
from report.crossings import break_evens, paybacks
from report.decision import decide
from report.evidence import Evidence, gather
from report.markdown import render_markdown
from report.page.render import render_page
from report.prices import load_prices
from report.serving import confirming_run, serving_row
from report.spending import stage_costs
from report.words import headline
from testbed.machine import provenance
from testbed.records import file_sha256, save, write_atomically
from testbed.records.cost import CostReport, ServingCost


def build_report(config: ReportConfig, *, run: Path) -> CostReport:
    """Write ``run/report/`` and return its record.

    Args:
        config: the experiment's section.
        run: a folder with ``bundle/`` and ``loads/``, and ``dataset/``, ``teacher/``, ``student/`` where trained here.

    Raises:
        UserError: records that are missing, damaged or do not belong together; a price book without the device.
    """
    evidence = gather(run)
    report = assess(config, evidence)
    figures = draw(report, evidence)
    folder = run / "report"
    for figure in figures:
        figure.save(folder / "charts")
    markdown = render_markdown(report, figures)
    page = render_page(report, figures, records=[f"../{path}" for path in record_paths(evidence)])
    write_atomically(folder / "report.md", lambda path: path.write_text(markdown, encoding="utf-8"))
    write_atomically(folder / "index.html", lambda path: path.write_text(page, encoding="utf-8"))
    save(report, folder / "report.json")
    return report


def assess(config: ReportConfig, evidence: Evidence) -> CostReport:
    """Return the verdict over the records."""
    book = load_prices(config.prices)
    rows = tuple(serving_row(variant, profile, evidence, config, book) for variant, profile in evidence.rows())
    break_even = break_evens(rows, evidence)
    payback = paybacks(rows, config.baseline, evidence)
    decision = decide(rows, config, batching=_batching(evidence))
    slo_s, slo_percentile = evidence.slo()
    parents = {path: file_sha256(evidence.run / path) for path in record_paths(evidence)}
    made = provenance(config.model_dump(mode="json"), parents)
    made["machine"] = evidence.machine_of(evidence.rows()[0][1])
    return CostReport(
        **made,
        experiment=evidence.manifest.name,
        headline=headline(rows, decision, break_even, payback, config.baseline),
        slo_s=slo_s,
        slo_percentile=slo_percentile,
        training=stage_costs(evidence, config, book),
        serving=rows,
        break_even=break_even,
        payback=payback,
        assumptions=assumptions(rows, config, evidence),
        decision=decision,
    )


def draw(report: CostReport, evidence: Evidence) -> list[Figure]:
    """Return the charts that the records allow."""
    names = [variant.name for variant in evidence.manifest.variants]
    chosen = report.decision.profile if report.decision else None
    profile = chosen or report.serving[0].profile
    figures = [
        cumulative_cost(report, profile, names),
        latency_against_load(evidence, report.slo_s, names),
        accuracy_against_cost(report, names),
        step_split(evidence),
    ]
    return [figure for figure in figures if figure is not None]


def record_paths(evidence: Evidence) -> list[str]:
    """Return the records that the verdict rests on, relative to the run's folder."""
    stages = [f"{stage}/record.json" for stage in evidence.training]
    dataset = ["dataset/record.json"] if evidence.dataset else []
    return [*dataset, *stages, "bundle/manifest.json", *(f"loads/{name}" for name in sorted(evidence.measured()))]


def assumptions(rows: tuple[ServingCost, ...], config: ReportConfig, evidence: Evidence) -> tuple[str, ...]:
    """Return what the verdict takes for granted, in sentences."""
    lines = [f"{row.profile}: {row.price.note}." for row in rows if row.price and row.price.basis != "matched"]
    shares = [
        f"A query on {row.profile} is charged for {row.price.share:.3g} of a {row.price.name}, the share of cores that "
        f"its server was given ({row.price.usd_per_hour:.4f} usd an hour; {row.price.source}, {row.price.date})."
        for row in rows
        if row.price
    ]
    if config.trials_share:
        lines.append(
            f"Finding the settings is taken to have cost {config.trials_share:.0%} of the final training runs."
        )
    if any(row.energy_method == "estimate" for row in rows):
        lines.append("No energy counter was there: energy is estimated from the price book's watts.")
    missing = [stage for stage in ("teacher", "student") if stage not in evidence.training]
    if missing:
        lines.append(f"The training of {' and '.join(missing)} has no record, so what rests on it is left open.")
    return tuple(dict.fromkeys([*lines, *shares]))


def _batching(evidence: Evidence) -> dict[tuple[str, str], float | None]:
    found: dict[tuple[str, str], float | None] = {}
    for variant, profile in evidence.rows():
        confirming = confirming_run(evidence.capacity_of(variant, profile), evidence.runs_of(variant, profile))
        found[variant, profile] = confirming.server.mean_batch_texts if confirming and confirming.server else None
    return found
