"""Figures from raw rows, and each validity rule on a run that breaks it and on one that does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadtests.checks import Evidence, judge
from loadtests.figures import figures, mean_timings
from loadtests.plan import Outcome, Plan
from loadtests.rows import Row, Rows, read_rows, write_rows
from loadtests.server import Target
from testbed.records import Proof

COUNT, GAP_S, SERVICE_S = 1000, 0.01, 0.008
SHA, OTHER_SHA = "a" * 64, "b" * 64


def rows_of(tmp_path: Path, *, late: int = 0, failed: int = 0, lag_s: float = 0.0001) -> Rows:
    rows = []
    for query in range(COUNT):
        due_s = query * GAP_S
        took_s = 0.06 if query < late else SERVICE_S
        error = "http_503:queue_full" if query >= COUNT - failed else None
        sent_s = due_s + lag_s
        timing = f"queue;dur=1.0, compute;dur={took_s * 1e3 - 2}"
        rows.append(Row(query, query, due_s, sent_s, sent_s + took_s, sent_s + took_s, 200, error, 50, 90, timing))
    path = tmp_path / "rows.parquet"
    write_rows(rows, path)
    return read_rows(path)


def evidence_of(tmp_path: Path, **rows: float) -> Evidence:
    found = rows_of(tmp_path, **rows)  # type: ignore[arg-type]
    window_s = COUNT * GAP_S
    plan = Plan(url="http://x", texts_file=tmp_path, rate_qps=1 / GAP_S, duration_s=window_s, rows_file=tmp_path / "r")
    service_s = float((found.done_s - found.sent_s).mean())
    outcome = Outcome(
        rows_file=tmp_path / "r",
        num_scheduled=COUNT,
        stopped_early=False,
        in_flight_mean=service_s / GAP_S,
        window_s=window_s,
        cpu_s=1.0,
        wall_s=window_s,
    )
    measured = figures(found, plan, outcome, slo_percentile=99, max_error_rate=0.001)
    return Evidence(
        plan=plan,
        outcome=outcome,
        figures=measured,
        share=0.99,
        claim="slo",
        ceiling_qps=5000.0,
        counted_ok=float(measured.num_ok),
        target=Target(url="", variant="v", profile="cpu", model="m", file_sha256=frozenset({SHA})),
        proof=Proof(providers={"CPUExecutionProvider": 9}, isa=(), threads=1, precision="fp32", file_sha256=SHA),
    )


def failed(evidence: Evidence) -> set[str]:
    return {check.name for check in judge(evidence) if not check.passed}


def test_a_clean_run_passes_every_check(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    assert failed(evidence) == set()
    assert len(judge(evidence)) == 11
    assert all(check.advice and check.bound for check in judge(evidence))


def test_latency_counts_from_the_scheduled_time_and_errors_are_misses(tmp_path: Path) -> None:
    found = evidence_of(tmp_path, failed=20, lag_s=0.003).figures
    assert found.latency is not None
    assert found.latency.quantiles["p50"].value_s == pytest.approx(SERVICE_S + 0.003)
    assert found.latency.num_samples == COUNT - 20
    assert (found.num_ok, found.num_late, found.errors) == (COUNT - 20, 20, {"http_503:queue_full": 20})
    assert found.goodput_qps == pytest.approx(98.0, rel=1e-3)
    assert found.error_rate == pytest.approx(0.02)
    assert not found.meets_slo


@pytest.mark.parametrize(("late", "meets"), [(0, True), (10, True), (11, False)])
def test_the_slo_is_a_share_of_all_queries(tmp_path: Path, late: int, meets: bool) -> None:
    assert evidence_of(tmp_path, late=late).figures.meets_slo is meets


def test_too_few_queries_for_the_number_of_late_ones(tmp_path: Path) -> None:
    assert failed(evidence_of(tmp_path, late=2)) == set()
    assert failed(evidence_of(tmp_path, late=9)) == {"enough_queries"}
    assert failed(replace(evidence_of(tmp_path, late=9), claim="percentile")) == set()


def test_queries_that_leave_late(tmp_path: Path) -> None:
    assert failed(evidence_of(tmp_path, lag_s=0.02)) == {"send_lag"}
    assert failed(evidence_of(tmp_path, lag_s=0.045)) == {"send_lag", "late_by_lag"}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"in_flight_mean": 0.9}, "little_law"),
        ({"cpu_s": 9.5}, "generator_cpu"),
        ({"num_scheduled": COUNT + 50}, "send_rate"),
    ],
)
def test_what_the_generator_says_of_itself(tmp_path: Path, change: dict[str, float], rule: str) -> None:
    evidence = evidence_of(tmp_path)
    assert failed(replace(evidence, outcome=evidence.outcome.model_copy(update=change))) == {rule}


def test_what_the_server_says(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    assert evidence.proof is not None
    other = evidence.proof.model_copy(update={"file_sha256": OTHER_SHA})
    lying = replace(evidence.figures, timings={"total": 0.0005, "compute": 0.0004}, mean_answer_s=0.02)
    boasting = replace(evidence.figures, timings={"queue": 0.01, "compute": 0.02})
    assert failed(replace(evidence, counted_ok=999.0)) == {"server_counted"}
    assert failed(replace(evidence, proof=other)) == {"proof"}
    assert failed(replace(evidence, proof=None)) == {"proof"}
    assert "server_time" in failed(replace(evidence, figures=lying))
    assert failed(replace(evidence, figures=boasting)) == {"server_time"}


def test_a_load_near_the_generators_own_ceiling(tmp_path: Path) -> None:
    assert failed(replace(evidence_of(tmp_path), ceiling_qps=110.0)) == {"generator_ceiling"}


def test_errors_of_the_generators_own_machine(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path)
    broken = replace(evidence.figures, errors={"connection:EMFILE": 3, "connection:ECONNREFUSED": 5})
    assert failed(replace(evidence, figures=broken)) == {"own_faults"}


def test_server_timings_are_means_over_the_answers_that_told_them(tmp_path: Path) -> None:
    timings = mean_timings(rows_of(tmp_path))
    assert timings["queue"] == pytest.approx(0.001)
    assert timings["compute"] == pytest.approx(SERVICE_S - 0.002, abs=1e-6)


def test_rows_survive_the_file_in_the_order_of_the_schedule(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows([Row(1, 5, 0.5, error=None, done_s=0.7), Row(0, 4, 0.25)], path)
    rows = read_rows(path)
    assert rows.scheduled_s.tolist() == [0.25, 0.5]
    assert rows.latency_s.tolist() == [np.inf, pytest.approx(0.2)]
