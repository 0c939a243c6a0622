import numpy as np
import pytest

from testbed.metrics import accuracy, agreement, mcnemar_p, mean_interval, paired_difference, wilson


def test_wilson_as_in_its_textbook_case() -> None:
    # 81 of 263: (0.2553, 0.3662), the worked example of Newcombe 1998, method 3.
    interval = wilson(81, 263)
    assert interval.low == pytest.approx(0.2553, abs=5e-5)
    assert interval.high == pytest.approx(0.3662, abs=5e-5)


def test_wilson_at_the_ends_holds_the_share_itself() -> None:
    assert wilson(0, 10).low == 0.0
    assert wilson(10, 10).high == 1.0
    assert wilson(10, 10).low == pytest.approx(0.7225, abs=1e-4)


def test_accuracy_counts_equal_rows() -> None:
    result = accuracy([0, 1, 2, 2], [0, 1, 2, 0])
    assert result.value == 0.75
    assert result.num_samples == 4
    assert result.interval.low < 0.75 < result.interval.high


def test_accuracy_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        accuracy([], [])


def test_paired_difference_uses_the_pairs() -> None:
    parent = np.array([True] * 90 + [False] * 10)
    same, interval = paired_difference(parent, parent)
    assert same == 0.0
    assert interval.low < 0 < interval.high
    worse = parent.copy()
    worse[:5] = False
    difference, narrow = paired_difference(worse, parent)
    assert difference == pytest.approx(-0.05)
    assert narrow.low < -0.05 < narrow.high
    shuffled = np.roll(parent, 5)  # the same accuracy as the parent, ten rows changed
    _, wide = paired_difference(shuffled, parent)
    assert wide.high - wide.low > interval.high - interval.low


def test_mcnemar_is_the_exact_binomial_test() -> None:
    right = np.array([True] * 8 + [False] * 2)
    parent = np.array([True] * 2 + [False] * 6 + [True] * 2)
    assert mcnemar_p(right, parent) == pytest.approx(0.2890625)  # 6 gained, 2 lost: 2 * P(X >= 6 of 8)
    assert mcnemar_p(right, right) == 1.0


def test_agreement_is_the_share_of_equal_labels() -> None:
    assert agreement(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 0])) == 0.75


def test_the_interval_of_a_mean_is_students() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0])
    # t(0.975, 3) = 3.1824, standard error = 1.2910 / 2
    assert (interval.low, interval.high) == pytest.approx((2.5 - 2.0543, 2.5 + 2.0543), abs=1e-4)
    with pytest.raises(ValueError, match="two values"):
        mean_interval([3.0])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_it_covers_what_it_says_also_with_few_values(count: int) -> None:
    draws = np.random.default_rng(count).normal(size=(2000, count))
    covered = [interval.low <= 0 <= interval.high for interval in (mean_interval(row.tolist()) for row in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
