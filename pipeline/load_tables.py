"""What a load test found, as tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from testbed.records import Capacity, LoadTestRun
from testbed.records.judges import JudgeReport
from testbed.records.sweeps import BatchingSweep, OverloadPoint, OverloadReport, SweepPoint

if TYPE_CHECKING:
    from loadtests.regression import Ratio

MISSING = "–"


def print_finding(result: LoadTestRun | Capacity, ratios: Sequence[Ratio], verdict: str) -> None:
    """Print one load test of a URL: its figures, the checks that failed, the comparison with the baseline."""
    console = Console(highlight=False)
    if isinstance(result, Capacity):
        most = f"{result.max_qps_at_slo:.0f}" if result.max_qps_at_slo is not None else f"none: {result.reason}"
        console.print(f"highest load within p{result.slo_percentile:g} ≤ {result.slo_s * 1e3:g} ms: {most} queries/s")
    else:
        _print_run(console, result)
    for ratio in ratios:
        between = f" ({ratio.interval.low:.3f} to {ratio.interval.high:.3f})" if ratio.interval else ""
        word = "REGRESSION" if ratio.regressed else "no significant regression"
        console.print(f"{ratio.figure} over the baseline's: {ratio.value:.3f}{between}: {word}")
    console.print(f"verdict: {verdict}")


def _print_run(console: Console, run: LoadTestRun) -> None:
    quantiles = run.latency.quantiles if run.latency else {}
    shown = "  ".join(f"{name} {quantile.value_s * 1e3:.1f} ms" for name, quantile in quantiles.items())
    console.print(
        f"offered {run.target_qps or 0:.0f}, sent {run.achieved_qps:.1f}, good {run.goodput_qps:.1f} queries/s"
    )
    console.print(f"{run.num_ok} of {run.num_sent} answered rightly  {shown}")
    for kind, count in run.errors.items():
        console.print(f"error {kind}: {count}")
    for check in run.checks:
        if not check.passed:
            measured = MISSING if check.measured is None else f"{check.measured:.4g}"
            console.print(f"INVALID {check.name}: {measured}, must be {check.bound}; help: {check.advice}")


def print_judges(report: JudgeReport) -> None:
    """Print the judges side by side, the coordinated-omission factors, and where they disagree."""
    console = Console(highlight=False)
    title = f"{report.variant} on {report.profile}: peak {report.peak_qps:.0f} queries/s"
    table = _table(title, "judge", "load", "asked\nqps", "got\nqps", "queries", "p50\nms", "p99\nms", "passed")
    for row in report.rows:
        table.add_row(
            row.judge,
            f"{row.factor:g}×",
            f"{row.target_qps:.0f}",
            f"{row.achieved_qps:.0f}",
            f"{row.num_queries}",
            _ms(row.p50_s),
            _ms(row.p99_s),
            "yes" if row.passed else "no",
        )
    console.print(table)
    for factor, omission in report.omission_factors.items():
        console.print(f"coordinated omission at {factor}×: the closed loop's p99 is {omission:.1f} times too low")
    for line in report.disagreements or ("the judges agree within their intervals",):
        console.print(line)


def print_overload(report: OverloadReport) -> None:
    """Print goodput, what was refused, and recovery at multiples of the peak."""
    title = f"{report.variant} on {report.profile}: peak {report.peak_qps:.0f} queries/s"
    table = _table(
        title,
        "load",
        "offered\nqps",
        "good\nqps",
        "served p99\nms",
        "errors",
        "short\nin SLO",
        "long\nin SLO",
        "back in\ns",
    )
    for point in report.points:
        table.add_row(
            f"{point.factor:g}×" + _mark(point),
            f"{point.offered_qps:.0f}",
            f"{point.goodput_qps:.0f}",
            _ms(point.served_p99_s),
            f"{point.error_rate:.1%}",
            _share(point.short_within_slo),
            _share(point.long_within_slo),
            MISSING if point.recovery_s is None else f"{point.recovery_s:.2f}",
        )
    Console(highlight=False).print(table)


def print_sweep(report: BatchingSweep) -> None:
    """Print every batching policy under every load, and the fitted time of a batch."""
    console = Console(highlight=False)
    table = _table(
        f"{report.variant} on {report.profile}",
        "policy", "offered\nqps", "good\nqps", "p50\nms", "p99\nms", "texts\na batch", "padding", "CPU ms\na query",
    )  # fmt: skip
    for point in report.points:
        table.add_row(
            point.policy + _mark(point),
            f"{point.target_qps:.0f}",
            f"{point.goodput_qps:.0f}",
            _ms(point.p50_s),
            _ms(point.p99_s),
            MISSING if point.mean_batch_texts is None else f"{point.mean_batch_texts:.1f}",
            _share(point.padding_ratio),
            _ms(point.cpu_s_per_query),
        )
    console.print(table)
    for policy, time in report.batch_times.items():
        console.print(
            f"{policy}: a batch takes {time.fixed_s * 1e3:.2f} ms + {time.per_token_s * 1e6:.1f} µs a token "
            f"(error {time.relative_error:.1%} over {time.num_runs} runs)"
        )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _mark(point: OverloadPoint | SweepPoint) -> str:
    return "" if point.valid else f" INVALID ({', '.join(point.broken_rules)})"


def _ms(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds * 1e3:.1f}"


def _share(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"
