"""The capacity search against a server whose limit is known, with and without noise."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from loadtests.capacity import Bracket, confirm, confirm_duration_s, interval_of, probe_at, search
from loadtests.config import LoadTestConfig
from testbed.latency import min_queries
from testbed.records import Probe


def probe(qps: float, limit_qps: float, *, valid: bool = True) -> Probe:
    return Probe(target_qps=qps, valid=valid, meets_slo=qps <= limit_qps, p99_s=0.01, error_rate=0.0)


@pytest.mark.parametrize("start_qps", [1.0, 90.0, 100.0, 1000.0])
def test_the_limit_is_bracketed_from_any_start(start_qps: float) -> None:
    found = search(lambda qps: probe(qps, 100.0), start_qps=start_qps, limit_qps=1e9, resolution=0.05, max_probes=40)
    assert found.passed_qps is not None
    assert found.failed_qps is not None
    assert found.passed_qps <= 100 < found.failed_qps <= found.passed_qps * 1.05


def test_a_good_guess_takes_few_probes() -> None:
    found = search(lambda qps: probe(qps, 100.0), start_qps=90.0, limit_qps=1e9, resolution=0.05, max_probes=40)
    assert len(found.probes) <= 6


def test_a_small_first_step_still_reaches_a_limit_far_below() -> None:
    found = search(
        lambda qps: probe(qps, 15.0), start_qps=100.0, limit_qps=1e9, resolution=0.05, max_probes=12, growth=1.1
    )
    assert found.passed_qps is not None
    assert 15.0 / 1.5 <= found.passed_qps <= 15.0


def test_no_load_above_the_generators_limit_is_tried() -> None:
    found = search(lambda qps: probe(qps, 1e9), start_qps=50.0, limit_qps=400.0, resolution=0.05, max_probes=40)
    assert found.passed_qps == 400.0
    assert max(each.target_qps for each in found.probes) == 400.0


def test_a_server_that_never_keeps_the_slo_ends_the_search() -> None:
    found = search(lambda qps: probe(qps, 0.0), start_qps=100.0, limit_qps=1e9, resolution=0.05, max_probes=40)
    assert found.passed_qps is None
    assert len(found.probes) < 40


def test_an_invalid_probe_is_no_pass() -> None:
    found = search(
        lambda qps: probe(qps, 1e9, valid=qps < 60), start_qps=50.0, limit_qps=1e9, resolution=0.05, max_probes=40
    )
    assert found.passed_qps is not None
    assert found.passed_qps < 60


def test_noise_near_the_limit_moves_the_bracket_by_little() -> None:
    rng = np.random.default_rng(5)

    def noisy(qps: float) -> Probe:
        return probe(qps, 100.0 * float(rng.normal(1.0, 0.05)))

    found = [search(noisy, start_qps=70.0, limit_qps=1e9, resolution=0.05, max_probes=12).passed_qps for _ in range(50)]
    assert np.median([qps for qps in found if qps]) == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("qps", [5.0, 50.0, 500.0])
def test_a_confirming_run_has_enough_queries_for_the_percentile(qps: float) -> None:
    duration_s = confirm_duration_s(qps, share=0.99, confirm_s=4.0, confirm_max_s=10.0)
    assert qps * duration_s >= min_queries(0, 0.99)
    assert duration_s >= 4.0


def test_repeats_have_students_interval_and_one_has_none() -> None:
    interval = interval_of([98.0, 100.0, 102.0])
    assert interval is not None
    assert interval.low == pytest.approx(100 - 4.303 * 2 / np.sqrt(3), rel=1e-3)
    assert interval_of([100.0]) is None


class Scripted:
    """A bench whose runs pass below a limit, but for the loads and seeds that a pause spoils."""

    def __init__(self, limit_qps: float, spoiled: set[int]) -> None:
        self.config = LoadTestConfig()
        self.limit_qps, self.spoiled, self.asked = limit_qps, spoiled, []

    def plan(self, target: object, **settings: object) -> SimpleNamespace:
        return SimpleNamespace(**settings)

    def measure(self, target: object, plan: SimpleNamespace, *, claim: str) -> SimpleNamespace:
        self.asked.append(plan.rate_qps)
        late = 0 if plan.rate_qps <= self.limit_qps and len(self.asked) not in self.spoiled else 99
        figures = SimpleNamespace(num_late=late, num_sent=100, meets_slo=late == 0, p99_s=0.01, error_rate=0.0)
        outcome = SimpleNamespace(stopped_early=False)
        return SimpleNamespace(valid=True, failed=(), figures=figures, outcome=outcome, plan=plan)

    def save(self, target: object, measured: SimpleNamespace, *, purpose: str) -> SimpleNamespace:
        return measured


def test_one_pause_of_the_machine_fails_no_load() -> None:
    assert probe_at(Scripted(100.0, {1}), None, 90.0).meets_slo  # type: ignore[arg-type]
    assert not probe_at(Scripted(100.0, {1}), None, 110.0).meets_slo  # type: ignore[arg-type]


def test_confirming_steps_down_and_then_closes_the_gap() -> None:
    bench = Scripted(85.0, set())
    run, reason = confirm(bench, None, Bracket(100.0, 105.0, (probe(100.0, 1e9),)))  # type: ignore[arg-type]
    assert reason is None
    assert run is not None
    assert 85.0 / 1.05 <= run.plan.rate_qps <= 85.0  # type: ignore[attr-defined]
    assert len(bench.asked) <= 6
