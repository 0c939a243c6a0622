import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.latency import min_queries, num_within, quantile, summarise
from testbed.metrics import paired_difference, wilson

latencies = st.lists(st.floats(min_value=1e-6, max_value=1e3), min_size=1, max_size=400)


@given(latencies, st.floats(min_value=0.01, max_value=0.99))
def test_a_quantile_is_a_sample_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    ordered = np.sort(np.array(values))
    found = quantile(ordered, share)
    assert found.value_s in ordered
    assert (ordered <= found.value_s).mean() >= share - 1e-9
    assert (ordered < found.value_s).mean() < share + 1e-9
    if found.interval is not None:
        assert found.interval.low <= found.value_s <= found.interval.high


@given(latencies)
def test_a_summary_is_ordered(values: list[float]) -> None:
    summary = summarise(values)
    assert summary is not None
    ladder = [summary.quantiles[name].value_s for name in ("p50", "p90", "p95", "p99")]
    assert summary.min_s <= ladder[0]
    assert ladder == sorted(ladder)
    assert ladder[-1] <= summary.max_s


@given(latencies, st.integers(min_value=0, max_value=50))
def test_a_miss_never_keeps_the_slo(values: list[float], misses: int) -> None:
    with_misses = np.array([*values, *[np.inf] * misses])
    assert num_within(with_misses, 1e9) == len(values)


@given(st.integers(min_value=0, max_value=40))
def test_more_late_queries_need_more_queries(num_late: int) -> None:
    assert min_queries(num_late, 0.99) < min_queries(num_late + 1, 0.99)


@given(st.integers(min_value=1, max_value=2000), st.data())
def test_wilson_holds_the_share_and_stays_in_range(num_samples: int, data: st.DataObject) -> None:
    num_right = data.draw(st.integers(min_value=0, max_value=num_samples))
    interval = wilson(num_right, num_samples)
    assert 0 <= interval.low <= num_right / num_samples <= interval.high <= 1


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_a_paired_difference_lies_in_its_interval_and_mirrors(pairs: list[tuple[bool, bool]]) -> None:
    right = np.array([pair[0] for pair in pairs])
    parent = np.array([pair[1] for pair in pairs])
    difference, interval = paired_difference(right, parent)
    mirrored, mirror = paired_difference(parent, right)
    assert interval.low <= difference <= interval.high
    assert np.isclose(difference, -mirrored)
    assert np.isclose(interval.low, -mirror.high)
