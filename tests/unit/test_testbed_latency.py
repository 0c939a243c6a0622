import numpy as np
import pytest

from testbed.latency import min_queries, quantile, summarise


@pytest.mark.parametrize(("num_late", "needed"), [(0, 459), (1, 662), (2, 838), (5, 1307)])
def test_the_query_counts_of_the_early_stopping_rule(num_late: int, needed: int) -> None:
    assert min_queries(num_late, 0.99) == needed


def test_exact_order_statistics() -> None:
    summary = summarise(np.arange(1, 101) / 1000)
    assert summary is not None
    assert [summary.quantiles[name].value_s for name in ("p50", "p90", "p95", "p99")] == [0.05, 0.09, 0.095, 0.099]
    assert summary.mean_s == pytest.approx(0.0505)


def test_no_sample_has_no_summary() -> None:
    assert summarise([]) is None


def test_too_few_samples_have_no_interval_at_the_tail() -> None:
    assert quantile(np.arange(50.0), 0.99).interval is None
    assert quantile(np.arange(1000.0), 0.99).interval is not None


def test_the_interval_covers_the_true_quantile_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    true_p90 = -np.log(0.1)
    held = 0
    for _ in range(400):
        found = quantile(np.sort(generator.exponential(size=500)), 0.9).interval
        assert found is not None
        held += found.low <= true_p90 <= found.high
    assert held / 400 == pytest.approx(0.95, abs=0.035)
