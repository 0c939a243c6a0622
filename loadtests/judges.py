"""Three judges on one server: the open loop, a closed loop, and MLPerf's LoadGen, side by side."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence

from loadtests.cores import pinned
from loadtests.loadgen_order import LoadGenOutcome, LoadGenPlan
from loadtests.measure import Bench, Measured
from loadtests.server import Target
from testbed.errors import UserError
from testbed.progress import say
from testbed.records import JudgeReport, JudgeRow, LoadTestRun, save

OPEN, CLOSED, LOADGEN = "open loop", "closed loop", "LoadGen (unofficial)"


def judge_server(
    bench: Bench, target: Target, *, peak_qps: float, factors: Sequence[float], duration_s: float
) -> JudgeReport:
    """Let each judge try the same loads, save and return what they say.

    Args:
        bench: a bench with a started generator.
        target: the server.
        peak_qps: the load that ``factors`` multiply.
        factors: such as 0.8 and 1.3.
        duration_s: of each judge's run.

    Raises:
        UserError: LoadGen is not installed, or it ended.
    """
    rows = [row for factor in factors for row in _rows(bench, target, factor, peak_qps, duration_s)]
    report = JudgeReport(
        **bench.provenance(),
        variant=target.variant,
        profile=target.profile,
        slo_s=bench.config.slo_s,
        slo_percentile=bench.config.slo_percentile,
        peak_qps=peak_qps,
        rows=tuple(rows),
        omission_factors=dict(omission_factors(rows)),
        disagreements=tuple(disagreements(rows)),
    )
    save(report, bench.folder / f"{target.variant}.{target.profile}.judges.json")
    return report


def omission_factors(rows: Sequence[JudgeRow]) -> Iterator[tuple[str, float]]:
    """Yield load factor and p99 of the open loop over p99 of the closed one."""
    for row in rows:
        closed = _same_load(rows, row, CLOSED)
        if row.judge == OPEN and closed is not None and row.p99_s and closed.p99_s:
            yield f"{row.factor:g}", row.p99_s / closed.p99_s


def disagreements(rows: Sequence[JudgeRow]) -> Iterator[str]:
    """Yield in words where LoadGen and the open loop part: in the verdict, or in p99 beyond their intervals."""
    for row in rows:
        other = _same_load(rows, row, LOADGEN)
        if row.judge != OPEN or other is None:
            continue
        if row.passed != other.passed:
            words = {True: "passes", False: "fails"}
            yield f"at {row.factor:g}× the open loop {words[row.passed]} and LoadGen {words[other.passed]}"
        ours, theirs = row.p99_interval, other.p99_interval
        # Above the limit p99 grows with the run, so its value is nobody's to agree on.
        if row.passed and ours and theirs and (ours.high < theirs.low or theirs.high < ours.low):
            yield (
                f"at {row.factor:g}× p99 is {ours.low:.4f}–{ours.high:.4f} s by the open loop "
                f"and {theirs.low:.4f}–{theirs.high:.4f} s by LoadGen"
            )


def as_table(report: JudgeReport) -> str:
    """Return the report as a markdown table, the omission factors and disagreements below it."""
    lines = [
        "| load | judge | offered/s | achieved/s | p50 ms | p99 ms | errors | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report.rows:
        verdict = "pass" if row.passed else "fail: " + "; ".join(row.reasons)
        lines.append(
            f"| {row.factor:g}× | {row.judge} | {row.target_qps:.1f} | {row.achieved_qps:.1f} | {_ms(row.p50_s)} | "
            f"{_ms(row.p99_s)} | {row.num_errors} of {row.num_queries} | {verdict} |"
        )
    lines.append("")
    for factor, ratio in report.omission_factors.items():
        lines.append(f"Coordinated omission at {factor}×: the closed loop shows 1/{ratio:.1f} of the open loop's p99.")
    lines += [f"Disagreement: {words}." for words in report.disagreements] or ["The judges agree."]
    return "\n".join(lines)


def _rows(bench: Bench, target: Target, factor: float, peak_qps: float, duration_s: float) -> Iterator[JudgeRow]:
    qps = factor * peak_qps
    plan = bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=qps)
    found = bench.measure(target, plan, claim="slo")
    record = bench.save(target, found, purpose="judge")
    yield _row_of(found, record, OPEN, factor, qps)
    # As many users as are in flight when every query takes just the SLO (Little's law).
    users = max(1, math.ceil(qps * bench.config.slo_s))
    plan = bench.plan(target, scenario="ClosedLoop", duration_s=duration_s, rate_qps=qps, users=users)
    found = bench.measure(target, plan, claim="slo")
    record = bench.save(target, found, purpose="judge")
    yield _row_of(found, record, CLOSED, factor, qps)
    order = LoadGenPlan(
        plan=bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=qps),
        percentile=bench.config.slo_percentile,
        folder=bench.folder / f"loadgen.{factor:g}",
    )
    yield _row_of_loadgen(_run_loadgen(order, cores=bench.generator.cores), factor, qps)
    say(f"judges: {factor:g}× of {peak_qps:.0f} queries/s done")


def _row_of(found: Measured, record: LoadTestRun, judge: str, factor: float, qps: float) -> JudgeRow:
    figures = found.figures
    p99 = None if figures.latency is None else figures.latency.quantiles["p99"]
    reasons = [f"{figures.num_late} of {figures.num_sent} late"] if not figures.meets_slo else []
    reasons += found.failed
    return JudgeRow(
        judge=judge,
        factor=factor,
        target_qps=qps,
        achieved_qps=figures.achieved_qps,
        num_queries=figures.num_sent,
        num_errors=sum(figures.errors.values()),
        p50_s=None if figures.latency is None else figures.latency.quantiles["p50"].value_s,
        p99_s=None if p99 is None else p99.value_s,
        p99_interval=None if p99 is None else p99.interval,
        passed=found.valid and figures.meets_slo,
        reasons=tuple(reasons),
        rows_sha256=record.rows_sha256,
    )


def _row_of_loadgen(outcome: LoadGenOutcome, factor: float, qps: float) -> JudgeRow:
    num_errors = sum(outcome.errors.values())
    reasons = [] if outcome.valid else list(outcome.reasons)
    # LoadGen does not see them; here they void its verdict.
    reasons += [f"{num_errors} failed queries, which LoadGen does not see"] if num_errors else []
    return JudgeRow(
        judge=LOADGEN,
        factor=factor,
        target_qps=qps,
        achieved_qps=outcome.completed_qps,
        num_queries=outcome.num_queries,
        num_errors=num_errors,
        p50_s=outcome.quantiles_s["p50"],
        p99_s=outcome.quantiles_s["p99"],
        p99_interval=outcome.seen.quantiles["p99"].interval,
        passed=outcome.valid and not num_errors,
        reasons=tuple(reasons),
    )


def _run_loadgen(order: LoadGenPlan, *, cores: tuple[int, ...] | None) -> LoadGenOutcome:
    """Run LoadGen in a process of its own, on the generator's cores."""
    with pinned(cores):
        done = subprocess.run(
            [sys.executable, "-m", "loadtests.loadgen"],
            input=order.model_dump_json(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no word"]
        msg = f"LoadGen ended with status {done.returncode} ({last[0]}); help: pip install mlcommons-loadgen"
        raise UserError(msg)
    return LoadGenOutcome.model_validate(json.loads(done.stdout.splitlines()[-1]))


def _same_load(rows: Sequence[JudgeRow], row: JudgeRow, judge: str) -> JudgeRow | None:
    return next((other for other in rows if other.judge == judge and other.factor == row.factor), None)


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.2f}"
