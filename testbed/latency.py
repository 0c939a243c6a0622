"""Exact latencies to order statistics, distribution-free intervals, and the verdict on an SLO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from testbed.records.base import Interval
from testbed.records.load import LatencySummary, Quantile

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def quantile(ordered: NDArray[np.float64], share: float, *, level: float = 0.95) -> Quantile:
    """Return the order statistic at ``share`` with its distribution-free interval.

    The value is the smallest one that at least ``share`` of the sample does not exceed. The interval's ranks come
    from the binomial distribution of how many samples fall below the true quantile (David and Nagaraja 2003, 7.1);
    it is None where the sample is too small for an upper rank.

    Args:
        ordered: at least one latency in seconds, ascending.
        share: in (0, 1).
        level: coverage.
    """
    count = len(ordered)
    rank = int(np.ceil(share * count - 1e-9))
    value = float(ordered[max(rank, 1) - 1])
    low_rank = int(stats.binom.ppf((1 - level) / 2, count, share))
    high_rank = int(stats.binom.ppf((1 + level) / 2, count, share)) + 1
    if low_rank < 1 or high_rank > count:
        return Quantile(value_s=value, interval=None)
    bounds = Interval(
        low=float(ordered[low_rank - 1]), high=float(ordered[high_rank - 1]), level=level, method="order statistics"
    )
    return Quantile(value_s=value, interval=bounds)


def summarise(latencies_s: Sequence[float] | NDArray[np.float64]) -> LatencySummary | None:
    """Return the summary of latencies in seconds, or None for no sample."""
    ordered = np.sort(np.asarray(latencies_s, dtype=np.float64))
    if not len(ordered):
        return None
    return LatencySummary(
        num_samples=len(ordered),
        mean_s=float(ordered.mean()),
        min_s=float(ordered[0]),
        max_s=float(ordered[-1]),
        quantiles={name: quantile(ordered, share) for name, share in QUANTILES.items()},
    )


def num_within(latencies_s: NDArray[np.float64], slo_s: float) -> int:
    """Return how many latencies keep the SLO; a miss is +infinity and never does."""
    return int((latencies_s <= slo_s).sum())


def min_queries(num_late: int, share: float, *, level: float = 0.99) -> int:
    """Return how many queries show with confidence ``level`` that ``share`` of them keep the SLO, ``num_late`` late.

    MLPerf LoadGen's early-stopping rule: the smallest n whose binomial lower bound on the share within the SLO, with
    ``num_late`` misses, is at least ``share``. p99 at 99 %: 459 with none late, 662 with one, 838 with two, 1,307
    with five.
    """
    low, high = num_late + 1, 64
    while stats.binom.cdf(num_late, high, 1 - share) > 1 - level:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        if stats.binom.cdf(num_late, middle, 1 - share) <= 1 - level:
            high = middle
        else:
            low = middle + 1
    return low
