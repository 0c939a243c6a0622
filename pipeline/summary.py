"""The table at the end of a run: what each variant does within the SLO, what it costs, where it breaks even."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from testbed.records import load_as
from testbed.records.cost import CostReport

MISSING = "–"


def print_summary(run: Path) -> None:
    """Print the verdict of a finished run on standard output."""
    report = load_as(CostReport, run / "report" / "report.json")
    console = Console()
    console.print()
    console.print(_table(report))
    console.print(f"[bold]{report.headline}[/bold]", highlight=False)
    console.print(f"page: {run / 'report' / 'index.html'}", highlight=False)


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
        table.add_column(name, justify="right")
    crossings = {(c.variant, c.profile): c for c in report.break_even}
    for row in report.serving:
        crossing = crossings.get((row.variant, row.profile))
        table.add_row(
            row.variant + ("" if row.valid else " (INVALID)"),
            row.profile,
            f"{row.accuracy.value:.3f}",
            _shown(row.max_qps_at_slo, "{:.0f}"),
            _shown(row.latency_p50_s, "{:.1f}", scale=1e3),
            _shown(row.latency_p99_s, "{:.1f}", scale=1e3),
            _shown(row.cost_usd_per_million_queries, "{:.3f}"),
            f"{row.size_bytes / 1e6:.0f}",
            _shown(crossing.queries if crossing else None, "{:,.0f}"),
        )
    return table


def _shown(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return MISSING if value is None else form.format(value * scale)
