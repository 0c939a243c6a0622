"""The capacity search against a server whose limit is known, with and without noise."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.capacity import confirm_duration_s, interval_of, search
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
