"""Turns a run's records into the verdict: `report.json` for programs, `report.md` for people, `index.html` to enjoy."""

from __future__ import annotations

from pathlib import Path

from report.ablation import ablation
from report.alternatives import alternatives
from report.assumptions import assumptions
from report.audit import audit
from report.charts.ablation import staircase
from report.charts.batching import batching_policies
from report.charts.costs import cumulative_cost
from report.charts.figure import Figure
from report.charts.fleet import replicas_over_time
from report.charts.latency import latency_against_load
from report.charts.memory import memory_ledger
from report.charts.overload import goodput_in_overload
from report.charts.roofline import roofline
from report.charts.simulation import simulated_against_measured
from report.charts.tradeoff import accuracy_against_cost
from report.charts.training import phase_split, step_split
from report.config import ReportConfig
from report.crossings import break_evens, paybacks, paybacks_between, precision_paybacks
from report.curves import measured_curves
from report.decision import decide
from report.evidence import Evidence, gather
from report.fleet.validation import check_simulation
from report.headline import headline
from report.markdown import render_markdown
from report.page.render import render_page
from report.prices import load_prices
from report.roofline import Ceilings, roof_points
from report.sensitivity import flips
from report.serving import confirming_run, serving_row
from report.spending import stage_costs
from testbed.ceilings import gemm, triad
from testbed.machine import describe, provenance
from testbed.records import file_sha256, save, write_atomically
from testbed.records.cost import CostReport, ServingCost, Step
from testbed.records.fleet import SimulationCheck

TRIAD_FLOATS = 8 * 2**20  # 64 MiB an array: well past any cache of a core


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
    markdown = render_markdown(report, figures, manifest=evidence.manifest)
    curves = measured_curves(evidence)
    records = [f"../{path}" for path in record_paths(evidence)]
    page = render_page(report, figures, config=config, curves=curves, records=records, manifest=evidence.manifest)
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
    slo_s, slo_percentile = evidence.slo()
    changes = flips(rows, config, measured_curves(evidence), slo_s=slo_s)
    decision = decide(rows, config, batching=_batching(evidence), flips=changes)
    parents = {path: file_sha256(evidence.run / path) for path in record_paths(evidence)}
    made = provenance(config.model_dump(mode="json"), parents)
    made["machine"] = evidence.machine_of(evidence.rows()[0][1])
    report = CostReport(
        **made,
        experiment=evidence.manifest.name,
        headline=headline(rows, decision, break_even, payback, config.baseline),
        slo_s=slo_s,
        slo_percentile=slo_percentile,
        training=stage_costs(evidence, config, book),
        serving=rows,
        break_even=break_even,
        payback=payback,
        precision_payback=precision_paybacks(rows, evidence),
        payback_between=paybacks_between(rows, evidence),
        assumptions=assumptions(rows, config, evidence),
        decision=decision,
        ablation=_ablations(rows, config, evidence),
    )
    simulation: tuple[SimulationCheck, ...] = ()
    if decision.variant and decision.profile:
        deadline_s = config.fleet.deadline_s
        simulation = check_simulation(decision.variant, decision.profile, evidence, deadline_s=deadline_s)
    chosen = next((row for row in rows if (row.variant, row.profile) == (decision.variant, decision.profile)), None)
    roof = _ceilings() if describe() == report.machine else Ceilings(None, None)
    report = report.model_copy(
        update={
            "simulation": simulation,
            "alternatives": alternatives(chosen, book),
            "memory_bytes_per_s": roof.bytes_per_s,
            "gemm_flops_per_s": roof.flops_per_s,
            "roofline": roof_points(evidence, roof),
        }
    )
    return report.model_copy(update={"audit": audit(report, evidence)})


def _ceilings() -> Ceilings:
    """Measure what one thread can do: well under a second."""
    return Ceilings(gemm(1).per_s, triad(1, num_floats=TRIAD_FLOATS).per_s)


def draw(report: CostReport, evidence: Evidence) -> list[Figure]:
    """Return the charts that the records allow."""
    names = [variant.name for variant in evidence.manifest.variants]
    chosen = report.decision.profile if report.decision else None
    profile = chosen or report.serving[0].profile
    figures = [
        cumulative_cost(report, profile, names),
        latency_against_load(evidence, report.slo_s, names),
        accuracy_against_cost(report, names),
        staircase(report, profile),
        goodput_in_overload(evidence, names),
        batching_policies(evidence),
        phase_split(evidence),
        step_split(evidence),
        memory_ledger(evidence),
        roofline(report, evidence, names),
        simulated_against_measured(report),
        replicas_over_time(evidence.plan),
    ]
    return [figure for figure in figures if figure is not None]


def record_paths(evidence: Evidence) -> list[str]:
    """Return the records that the verdict rests on, relative to the run's folder."""
    stages = [f"{stage}/record.json" for stage in evidence.training]
    dataset = ["dataset/record.json"] if evidence.dataset else []
    return [*dataset, *stages, "bundle/manifest.json", *(f"loads/{name}" for name in sorted(evidence.measured()))]


def _ablations(rows: tuple[ServingCost, ...], config: ReportConfig, evidence: Evidence) -> dict[str, tuple[Step, ...]]:
    """Return each profile's way from the baseline to its row of the highest capacity."""
    found = {}
    for profile in dict.fromkeys(row.profile for row in rows):
        able = [row for row in rows if row.profile == profile and row.valid and row.max_qps_at_slo]
        best = max(able, key=lambda row: row.max_qps_at_slo or 0.0, default=None)
        steps = ablation(rows, profile, evidence, best=best.variant, baseline=config.baseline) if best else ()
        if steps:
            found[profile] = steps
    return found


def _batching(evidence: Evidence) -> dict[tuple[str, str], float | None]:
    found: dict[tuple[str, str], float | None] = {}
    for variant, profile in evidence.rows():
        confirming = confirming_run(evidence.capacity_of(variant, profile), evidence.runs_of(variant, profile))
        found[variant, profile] = confirming.server.mean_batch_texts if confirming and confirming.server else None
    return found
