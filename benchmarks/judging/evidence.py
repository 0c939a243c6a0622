"""The evidence of the load tests, one command a results folder; each ends with its tables in figures.md.

    python benchmarks/judging/evidence.py judges   BUNDLE --into results/…   (about 6 minutes)
    python benchmarks/judging/evidence.py overload BUNDLE --into results/…   (about 2)
    python benchmarks/judging/evidence.py batching BUNDLE --into results/…   (about 3)

The folder gets the reports, which hold the hashes of the raw rows; the rows themselves and every run's record stay in
``--raw``.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from generator import measure_generator

from loadtests.config import LoadTestConfig
from loadtests.judges import as_table
from loadtests.suite import run_suite
from loadtests.trials import judge_bundle, overload_bundle, sweep_bundle
from report.config import ReportConfig
from report.prices import load_prices
from testbed.records import (
    BatchingSweep,
    Capacity,
    Interval,
    Machine,
    OverloadPoint,
    OverloadReport,
    SweepPoint,
    write_atomically,
)

JUDGE_S, OVERLOAD_S, SWEEP_S = 15.0, 5.0, 4.0
MISSING = "–"
# Long enough probes and confirmations that the search, not its sample, decides.
SEARCH = LoadTestConfig(probe_s=1.5, confirm_s=5.0, confirm_max_s=10.0, resolution=0.03, max_probes=8)
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

Bundle = Annotated[Path, typer.Argument(help="bundle folder")]
Into = Annotated[Path, typer.Option(help="results folder")]
Raw = Annotated[Path, typer.Option(help="folder that gets raw rows, every run's record, logs; made anew")]
Variant = Annotated[str, typer.Option(help="variant of the bundle")]


@app.command()
def judges(
    bundle: Bundle, into: Into, raw: Raw = Path("runs/evidence/judges"), variant: Variant = "student-int8"
) -> None:
    """Measure the generator, let three judges try one server, and search for the same capacity three times."""
    _anew(raw)
    pages = ["## The generator", measure_generator(raw / "generator", into)]
    report = judge_bundle(
        SEARCH, bundle=bundle, variant=variant, profile="cpu", folder=raw / "judges", duration_s=JUDGE_S
    )
    pages += ["## Judges", f"Peak, measured in the same session: {report.peak_qps:.0f} queries/s.", as_table(report)]
    repeated = SEARCH.model_copy(
        update={"repeats": 3, "variants": (variant, "student-fp32"), "curve_variants": 0, "idle_s": 0.2}
    )
    records = run_suite(repeated, bundle=bundle, profiles=("cpu",), folder=raw / "capacity")
    found = [record for record in records if isinstance(record, Capacity)]
    pages += ["## Does the same search give the same capacity?", capacity_table(found)]
    _keep(raw / "judges" / f"{variant}.cpu.judges.json", into)
    for capacity in found:
        _keep(raw / "capacity" / f"{capacity.variant}.cpu.capacity.json", into)
    _write(pages, report.machine, into)


@app.command()
def overload(
    bundle: Bundle, into: Into, raw: Raw = Path("runs/evidence/overload"), variant: Variant = "student-int8"
) -> None:
    """Offer one server half to three times its peak."""
    _anew(raw)
    report = overload_bundle(SEARCH, bundle=bundle, variant=variant, profile="cpu", folder=raw, duration_s=OVERLOAD_S)
    _keep(raw / f"{variant}.cpu.overload.json", into)
    _write([overload_table(report)], report.machine, into)


@app.command()
def batching(
    bundle: Bundle, into: Into, raw: Raw = Path("runs/evidence/batching"), variant: Variant = "student-int8"
) -> None:
    """Offer one server the same loads under every batching policy."""
    _anew(raw)
    report = sweep_bundle(SEARCH, bundle=bundle, variant=variant, profile="cpu", folder=raw, duration_s=SWEEP_S)
    _keep(raw / f"{variant}.cpu.sweep.json", into)
    _write([sweep_table(report), batch_time_table(report)], report.machine, into)


def capacity_table(found: Sequence[Capacity]) -> str:
    """Return each variant's repeats, how far they lie apart, and the interval of their mean."""
    rows = []
    for each in found:
        spread = max(each.repeats) / min(each.repeats) - 1 if each.repeats else None
        mean = f"{each.max_qps_at_slo:.0f}" if each.max_qps_at_slo else f"{MISSING}: {each.reason}"
        rows.append(
            [
                each.variant,
                ", ".join(f"{qps:.0f}" for qps in each.repeats),
                mean,
                _between(each.interval, 1),
                _share(spread),
            ]
        )
    return _table(["variant", "rounds, queries/s", "mean", "95 % interval (Student)", "highest over lowest"], rows)


def overload_table(report: OverloadReport) -> str:
    """Return goodput, what was refused, whom it served, and the recovery."""
    best = max((point.goodput_qps for point in report.points if point.valid), default=0.0)
    heads = ["load", "offered/s", "right and in time, /s", "of the best", "refused", "p99 of the served, ms"]
    heads += ["short texts in time", "long texts in time", "recovery, s", "valid"]
    rows = [_overload_row(point, best) for point in report.points]
    shed = [
        f"- {point.factor:g}×: " + ", ".join(f"{count} {kind}" for kind, count in sorted(point.shed.items()))
        for point in report.points
        if point.shed
    ]
    return "\n".join([f"Peak of the same session: {report.peak_qps:.0f} queries/s.\n", _table(heads, rows), "", *shed])


def _overload_row(point: OverloadPoint, best: float) -> list[str]:
    return [
        f"{point.factor:g}×",
        f"{point.offered_qps:.0f}",
        f"{point.goodput_qps:.0f}",
        _share(point.goodput_qps / best if best else None),
        f"{point.error_rate:.1%}",
        _ms(point.served_p99_s),
        _share(point.short_within_slo),
        _share(point.long_within_slo),
        MISSING if point.recovery_s is None else f"{point.recovery_s:.2f}",
        _verdict(point),
    ]


def sweep_table(report: BatchingSweep) -> str:
    """Return every policy under every load, with what its one core costs for a million right answers in time."""
    price = load_prices().price(ReportConfig(), report.machine, use="cpu", cores=1)
    heads = ["policy", "offered/s", "within the SLO, /s", "p50 ms", "p99 ms", "p99 predicted", "texts a batch"]
    heads += ["padding", "CPU ms a query", f"p99 ≤ {report.slo_s * 1e3:g} ms", "valid"]
    heads.insert(-2, "usd a million")
    rows = [_sweep_row(point, price.usd_per_hour) for point in report.points]
    return _table(heads, rows) + f"\n\nOne core at {price.usd_per_hour:.4f} usd an hour: {price.note}."


def _sweep_row(point: SweepPoint, usd_per_hour: float) -> list[str]:
    usd = usd_per_hour / 3600 / point.goodput_qps * 1e6 if point.valid and point.goodput_qps else None
    return [
        point.policy,
        f"{point.target_qps:.0f}",
        f"{point.goodput_qps:.0f}",
        _ms(point.p50_s),
        _ms(point.p99_s),
        _ms(point.predicted_p99_s),
        MISSING if point.mean_batch_texts is None else f"{point.mean_batch_texts:.2f}",
        _share(point.padding_ratio),
        _ms(point.cpu_s_per_query, 2),
        MISSING if usd is None else f"{usd:.3f}",
        "yes" if point.meets_slo else "no",
        _verdict(point),
    ]


def _verdict(point: OverloadPoint | SweepPoint) -> str:
    return "yes" if point.valid else f"INVALID: {', '.join(point.broken_rules)}"


def batch_time_table(report: BatchingSweep) -> str:
    """Return the fitted time of a batch, with the error of what it predicts."""
    heads = ["policy", "fixed, µs a batch (95 %)", "µs a computed token (95 %)", "residual", "error of p99", "runs"]
    rows = [
        [
            policy,
            f"{time.fixed_s * 1e6:.0f} ({_between(time.fixed_interval, 1e6)})",
            f"{time.per_token_s * 1e6:.1f} ({_between(time.per_token_interval, 1e6, 1)})",
            _share(time.relative_error, 1),
            _share(time.p99_error),
            str(time.num_runs),
        ]
        for policy, time in report.batch_times.items()
    ]
    return "A batch's time, *a + b·tokens*:\n\n" + _table(heads, rows)


def _anew(raw: Path) -> None:
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir(parents=True)


def _keep(path: Path, into: Path) -> None:
    write_atomically(into / path.name, lambda temporary: temporary.write_bytes(path.read_bytes()))


def _write(pages: Sequence[str], machine: Machine, into: Path) -> None:
    about = f"Machine: {machine.cpu_model}, {machine.logical_cores} logical cores, {machine.os}."
    text = "\n\n".join([*pages, about]) + "\n"
    write_atomically(into / "figures.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))
    typer.echo(text)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ms(seconds: float | None, digits: int = 1) -> str:
    return MISSING if seconds is None else f"{seconds * 1e3:.{digits}f}"


def _share(value: float | None, digits: int = 0) -> str:
    return MISSING if value is None else f"{value:.{digits}%}"


def _between(interval: Interval | None, scale: float, digits: int = 0) -> str:
    return MISSING if interval is None else f"{interval.low * scale:.{digits}f} to {interval.high * scale:.{digits}f}"


if __name__ == "__main__":
    app()
