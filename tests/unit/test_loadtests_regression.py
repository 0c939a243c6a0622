"""Regression by interval: a shift is found, noise is not one, misses count."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.regression import capacity_ratio, latency_ratio
from testbed.errors import UserError


def latencies(seed: int, scale: float = 1.0, count: int = 2000) -> np.ndarray:
    return 0.005 + scale * np.random.default_rng(seed).gamma(2.0, 0.005, size=count)


def test_the_same_server_twice_is_no_regression_in_nineteen_of_twenty() -> None:
    found = [latency_ratio(latencies(2 * i), latencies(2 * i + 1), "p99", 0.99).regressed for i in range(20)]
    assert sum(found) <= 2


@pytest.mark.parametrize(("name", "share"), [("p50", 0.5), ("p99", 0.99)])
def test_a_server_that_became_slower_is_one_and_a_faster_one_is_not(name: str, share: float) -> None:
    slower = latency_ratio(latencies(1, scale=1.5), latencies(2), name, share)
    faster = latency_ratio(latencies(1), latencies(2, scale=1.5), name, share)
    assert slower.regressed
    assert not faster.regressed
    assert slower.interval is not None
    assert slower.interval.low <= slower.value <= slower.interval.high


def test_less_than_two_starts_differ_by_is_none() -> None:
    constant = np.full(2000, 0.01)
    assert not latency_ratio(constant * 1.04, constant, "p50", 0.5).regressed
    assert latency_ratio(constant * 1.06, constant, "p50", 0.5).regressed


def test_late_spells_widen_the_interval() -> None:
    scattered, together = latencies(1), np.sort(latencies(1))
    wide = latency_ratio(together, latencies(2), "p99", 0.99).interval
    narrow = latency_ratio(scattered, latencies(2), "p99", 0.99).interval
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_misses_regress_and_misses_on_both_sides_do_not() -> None:
    failing = latencies(1)
    failing[::20] = np.inf
    assert latency_ratio(failing, latencies(2), "p99", 0.99).regressed
    assert latency_ratio(failing, failing, "p99", 0.99).value == 1.0
    assert not latency_ratio(failing, failing, "p99", 0.99).regressed


def test_capacities_are_compared_over_their_repeats() -> None:
    assert capacity_ratio((80.0, 82.0, 81.0), (100.0, 98.0, 101.0)).regressed
    assert not capacity_ratio((97.0, 103.0, 99.0), (100.0, 98.0, 101.0)).regressed
    with pytest.raises(UserError, match="repeats to 3"):
        capacity_ratio((80.0,), (100.0, 99.0))
