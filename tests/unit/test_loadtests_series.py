"""Overload's and the sweep's arithmetic on rows and counters that are made up, so that the answer is known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from loadtests.counts import ServerCounts, counts_between
from loadtests.judges import CLOSED, LOADGEN, OPEN, disagreements, omission_factors
from loadtests.overload import recovery_s, shares_by_size
from loadtests.predict import error_of, packed_sojourns_s, tokens_by_length
from loadtests.rows import Row, Rows, read_rows, write_rows
from loadtests.scrape import Counters
from loadtests.sweep import fit_batch_time, with_model
from testbed.records import BatchTime, JudgeRow, SweepPoint

SLO_S = 0.05


def rows_with(tmp_path: Path, late: set[int], failed: set[int] = frozenset(), count: int = 100) -> Rows:  # type: ignore[assignment]
    rows = [
        Row(
            i,
            i,
            i * 0.1,
            i * 0.1,
            None,
            i * 0.1 + (0.2 if i in late else 0.01),
            200,
            "http_429" if i in failed else None,
        )
        for i in range(count)
    ]
    write_rows(rows, tmp_path / "r.parquet")
    return read_rows(tmp_path / "r.parquet")


def test_recovery_is_the_last_late_or_failed_query_after_the_load_fell(tmp_path: Path) -> None:
    assert recovery_s(rows_with(tmp_path, set()), 5.0, SLO_S) == 0.0
    assert recovery_s(rows_with(tmp_path, {10, 53}), 5.0, SLO_S) == pytest.approx(0.3)
    assert recovery_s(rows_with(tmp_path, {53}, {60}), 5.0, SLO_S) == pytest.approx(1.0)
    assert recovery_s(rows_with(tmp_path, {53, 99}), 5.0, SLO_S) is None


def test_fairness_compares_the_shortest_with_the_longest_quarter(tmp_path: Path) -> None:
    rows = rows_with(tmp_path, set(range(90, 100)))
    short, long = shares_by_size(rows, np.ones(100, dtype=np.bool_), np.arange(100), SLO_S)
    assert short == 1.0
    assert long == pytest.approx(1 - 10 / 25)
    assert shares_by_size(rows, np.zeros(100, dtype=np.bool_), np.arange(100), SLO_S) == (None, None)


def counts(batches: float, tokens: float, seconds: float) -> ServerCounts:
    return ServerCounts(batches=batches, computed_tokens=tokens, compute_s=seconds)


def test_the_batch_time_model_is_found_from_the_means_of_runs() -> None:
    runs = [counts(n, n * mean, n * (0.001 + 0.0002 * mean)) for n, mean in ((100, 16), (80, 30), (50, 90))]
    fitted = fit_batch_time(runs)
    assert fitted is not None
    assert fitted.fixed_s == pytest.approx(0.001)
    assert fitted.per_token_s == pytest.approx(0.0002)
    assert fitted.relative_error == pytest.approx(0, abs=1e-9)
    assert fit_batch_time(runs[:2]) is None
    assert fit_batch_time([counts(10, 160, 0.04)] * 3) is None
    assert fit_batch_time([ServerCounts()] * 5) is None


def test_a_packed_queue_is_predicted_from_the_time_of_a_batch() -> None:
    time = BatchTime(
        fixed_s=0.002, per_token_s=0.0001, fixed_interval=None, per_token_interval=None, relative_error=0, num_runs=3
    )
    # The first is alone; while it computes three arrive, which are packed; the last finds the server idle.
    arrivals_s, tokens = np.array([0.0, 0.001, 0.002, 0.003, 1.0]), np.array([20.0, 10.0, 10.0, 20.0, 10.0])
    found = packed_sojourns_s(arrivals_s, tokens, time, per_text_s=0.0005)
    first_s, packed_s = 0.002 + 0.002 + 0.0005, 0.002 + 0.004 + 0.0015
    behind = [first_s + packed_s - at for at in (0.001, 0.002, 0.003)]
    assert found == pytest.approx([first_s, *behind, 0.0035])
    assert tokens_by_length(np.array([10, 30]), 16.0) == pytest.approx([8.0, 24.0])
    assert error_of([1.1, 0.8, 1.0], [1.0, 1.0, 1.0]) == pytest.approx(0.1)
    assert error_of([], []) is None


def test_a_sweep_predicts_the_packed_policys_valid_runs_alone(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("12345678\n" * 10)
    bench = SimpleNamespace(texts_file=texts)
    runs = []
    for number, mean in enumerate((8.0, 16.0, 32.0)):
        # A query every 0.1 s, each in a batch of its own: its time is the model's, and 1 ms of CPU outside it.
        rows_file = tmp_path / f"{number}.parquet"
        write_rows([Row(i, i % 10, i * 0.1, error=None) for i in range(50)], rows_file)
        seconds = 0.001 + 0.0002 * mean
        found = SimpleNamespace(
            counts=counts(50, 50 * mean, 50 * seconds),
            server=SimpleNamespace(loaded=SimpleNamespace(cpu_s=50 * (seconds + 0.001))),
            figures=SimpleNamespace(num_ok=50),
            outcome=SimpleNamespace(rows_file=rows_file),
        )
        runs.append((found, swept(p99_s=2 * (seconds + 0.001), valid=number > 0)))
    target = SimpleNamespace(cores=(0,))
    points, time = with_model(bench, target, "packed", runs)  # type: ignore[arg-type]
    assert [point.predicted_p99_s for point in points] == [None, pytest.approx(0.0052), pytest.approx(0.0084)]
    assert time is not None
    assert time.p99_error == pytest.approx(0.5)
    shared = SimpleNamespace(cores=(0, 1))
    points, _ = with_model(bench, shared, "packed", runs)  # type: ignore[arg-type]
    assert points[1].predicted_p99_s == pytest.approx(0.0042)
    points, time = with_model(bench, target, "fixed", runs)  # type: ignore[arg-type]
    assert {point.predicted_p99_s for point in points} == {None}
    assert time is not None


def swept(p99_s: float, *, valid: bool) -> SweepPoint:
    return SweepPoint(
        policy="packed", target_qps=10, goodput_qps=10, p50_s=p99_s, p99_s=p99_s, mean_batch_texts=1, padding_ratio=0,
        cpu_s_per_query=0.01, energy_j_per_query=None, energy_method=None, meets_slo=True, valid=valid, run="r.json",
    )  # fmt: skip


def test_counters_grow_from_where_they_were() -> None:
    def reading(ok: float, shed: float, padding: float) -> Counters:
        def labels(**values: str) -> frozenset[tuple[str, str]]:
            return frozenset(values.items())

        return Counters(
            {
                ("breakeven_requests_total", labels(status="200")): ok,
                ("breakeven_requests_total", labels(status="429")): shed,
                ("breakeven_computed_tokens_total", labels(kind="real")): 90.0,
                ("breakeven_computed_tokens_total", labels(kind="padding")): padding,
                ("breakeven_batch_texts_count", labels(model="m")): ok / 4,
                ("breakeven_batch_texts_sum", labels(model="m")): ok,
            }
        )

    grown = counts_between(reading(100, 5, 10), reading(180, 9, 40))
    assert (grown.requests, grown.ok, grown.mean_batch_texts) == (84, 80, 4)
    assert grown.padding_ratio == 1.0
    assert counts_between(None, reading(1, 1, 1)) == ServerCounts()


def judged(judge: str, p99_s: float, *, passed: bool, factor: float = 1.3) -> JudgeRow:
    return JudgeRow(
        judge=judge, factor=factor, target_qps=10, achieved_qps=10, num_queries=9, num_errors=0, p50_s=0.01,
        p99_s=p99_s, p99_interval={"low": p99_s * 0.9, "high": p99_s * 1.1, "method": "m"}, passed=passed,
    )  # fmt: skip


def test_judges_that_part_in_verdict_or_beyond_their_intervals_are_named() -> None:
    agree = [judged(OPEN, 0.04, passed=True), judged(CLOSED, 0.02, passed=True), judged(LOADGEN, 0.042, passed=True)]
    assert list(disagreements(agree)) == []
    assert dict(omission_factors(agree)) == {"1.3": pytest.approx(2.0)}
    parted = [judged(OPEN, 0.04, passed=True), judged(LOADGEN, 0.08, passed=False)]
    verdict, tail = disagreements(parted)
    assert "open loop passes and LoadGen fails" in verdict
    assert "p99 is 0.0360–0.0440 s by the open loop" in tail
