"""The table at the end of a run: what each variant does within the SLO, what it costs, where it breaks even."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from testbed.records import load_as
from testbed.records.cost import CostReport
from testbed.records.fleet import FleetPlan

MISSING = "–"


def print_summary(run: Path) -> None:
    """Print the verdict of a finished run on standard output."""
    report = load_as(CostReport, run / "report" / "report.json")
    console = Console()
    console.print()
    console.print(_table(report))
    console.print(f"[bold]{report.headline}[/bold]", highlight=False)
    console.print(f"page: {run / 'report' / 'index.html'}", highlight=False)


def print_plan(plan: FleetPlan) -> None:
    """Print a fleet plan: the fleets, the rule, and how well the simulation meets the load tests."""
    console = Console()
    title = (
        f"{plan.variant} on {plan.profile}: {plan.queries_per_day:,.0f} queries a day, p99 ≤ {plan.slo_s * 1e3:g} ms"
    )
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in ("fleet", "replicas", "p99\nms", "within\nSLO", "busy", "usd\na day", "usd\nper 1M"):
        table.add_column(name, justify="left" if name == "fleet" else "right")
    for fleet in plan.fleets:
        table.add_row(
            fleet.name,
            f"{fleet.mean_replicas:.1f} (max {fleet.max_replicas})",
            _shown(fleet.p99_s, "{:.1f}", scale=1e3),
            f"{fleet.within_slo:.2%}",
            f"{fleet.utilisation:.0%}",
            _shown(fleet.usd_per_day, "{:.2f}"),
            _shown(fleet.usd_per_million_queries, "{:.3f}"),
        )
    console.print(table)
    console.print(plan.rule, highlight=False)
    for check in plan.checks:
        console.print(
            f"simulated against measured at {check.target_qps:.0f} queries/s: p50 {check.p50_error:+.0%}, "
            f"p99 {check.p99_error:+.0%}",
            highlight=False,
        )
    console.print(f"{plan.num_simulated:,} queries simulated in {plan.wall_s:.1f} s", highlight=False)


def _table(report: CostReport) -> Table:
    slo_ms = report.slo_s * 1e3
    table = Table(
        title=f"{report.experiment}: serving within p99 ≤ {slo_ms:g} ms",
        box=SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    table.add_column("variant", no_wrap=True)
    table.add_column("on", no_wrap=True)
    for name in ("acc.", "qps", "p50\nms", "p99\nms", "usd\nper 1M", "MB", "break-even\nqueries"):
        table.add_column(name, justify="right", no_wrap=name.endswith("queries"))
    crossings = {(c.variant, c.profile): c for c in report.break_even}
    for row in report.serving:
        crossing = crossings.get((row.variant, row.profile))
        table.add_row(
            row.variant,
            row.profile,
            f"{row.accuracy.value:.3f}",
            _shown(row.max_qps_at_slo, "{:.0f}") if row.valid else "INVALID",
            _shown(row.latency_p50_s, "{:.1f}", scale=1e3),
            _shown(row.latency_p99_s, "{:.1f}", scale=1e3),
            _shown(row.cost_usd_per_million_queries, "{:.3f}"),
            f"{row.size_bytes / 1e6:.0f}",
            _shown(crossing.queries if crossing else None, "{:,.0f}"),
        )
    return table


def _shown(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return MISSING if value is None else form.format(value * scale)
