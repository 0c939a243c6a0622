"""Is this run slower than that one? Ratios with intervals: a point that moved within its noise is no regression."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from loadtests.rows import read_rows
from testbed.errors import UserError
from testbed.records import Capacity, Interval, LoadTestRun, load

NUM_BLOCKS = 50  # queries of one busy spell are late together, so whole spells are drawn, not single queries
NUM_DRAWS = 2000
LEAST_REPEATS = 2
# Two starts of one server differ by some percent, which the rows of one run each cannot know of.
BETWEEN_STARTS = 1.05


@dataclass(frozen=True)
class Ratio:
    """A figure now over the same figure before.

    Attributes:
        figure: ``p50``, ``p99`` (a regression lies above 1) or ``max_qps_at_slo`` (below 1).
        value: the ratio, +infinity where only the new run has misses at that percentile.
        interval: 95 %.
        regressed: the whole interval lies on the wrong side of 1; that of a latency, one run against one, beyond 1.05.
    """

    figure: str
    value: float
    interval: Interval | None
    regressed: bool


def compare(now: LoadTestRun | Capacity, folder: Path, baseline: Path) -> list[Ratio]:
    """Compare a result with an earlier record of the same kind.

    Args:
        now: the new result.
        folder: where its raw rows are.
        baseline: the earlier record; its raw rows lie beside it.

    Raises:
        UserError: a record of another kind, or repeats that are too few for an interval.
    """
    before = load(baseline)
    if isinstance(now, LoadTestRun) and isinstance(before, LoadTestRun):
        old, new = (read_rows(path).latency_s for path in (baseline.parent / before.rows_file, folder / now.rows_file))
        return [latency_ratio(new, old, name, share) for name, share in {"p50": 0.5, "p99": 0.99}.items()]
    if isinstance(now, Capacity) and isinstance(before, Capacity):
        return [capacity_ratio(now.repeats, before.repeats)]
    kinds = f"a {type(before).__name__}, this load test gives a {type(now).__name__}"
    msg = f"{baseline}: holds {kinds}; help: compare records of one kind"
    raise UserError(msg)


def latency_ratio(now_s: NDArray[np.float64], before_s: NDArray[np.float64], name: str, share: float) -> Ratio:
    """Return the ratio of a percentile with its block-bootstrap interval (Künsch 1989).

    Args:
        now_s: latencies in the order of the schedule; a miss is +infinity.
        before_s: the same of the earlier run.
        name: of the percentile.
        share: in (0, 1).
    """
    rng = np.random.default_rng(0)
    draws = _ratio(_resampled(now_s, share, rng), _resampled(before_s, share, rng))
    low, high = (float(np.quantile(draws, q, method="inverted_cdf")) for q in (0.025, 0.975))
    value = float(_ratio(_quantile(now_s, share), _quantile(before_s, share)))
    finite = np.isfinite([low, high]).all()
    interval = Interval(low=low, high=high, method="block bootstrap") if finite else None
    return Ratio(name, value, interval, regressed=low > BETWEEN_STARTS)


def capacity_ratio(now: tuple[float, ...], before: tuple[float, ...]) -> Ratio:
    """Return the ratio of two capacities with Welch's interval of the difference of logarithms."""
    if min(len(now), len(before)) < LEAST_REPEATS:
        msg = f"{len(before)} against {len(now)} repeats give no interval; help: set loadtests.repeats to 3 or more"
        raise UserError(msg)
    logs = np.log(now), np.log(before)
    between = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
    low, high = float(np.exp(between.low)), float(np.exp(between.high))
    value = float(np.exp(logs[0].mean() - logs[1].mean()))
    interval = Interval(low=low, high=high, method="welch t of logarithms")
    return Ratio("max_qps_at_slo", value, interval, regressed=high < 1)


def _resampled(values: NDArray[np.float64], share: float, rng: np.random.Generator) -> NDArray[np.float64]:
    blocks = np.array_split(values, min(NUM_BLOCKS, len(values)))
    picks = rng.integers(0, len(blocks), size=(NUM_DRAWS, len(blocks)))
    return np.asarray([_quantile(np.concatenate([blocks[i] for i in pick]), share) for pick in picks])


def _quantile(values: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    return np.asarray(np.quantile(values, share, method="inverted_cdf"))


def _ratio(now: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return now over before, 1 where both are misses."""
    both = np.isinf(now) & np.isinf(before)
    return np.where(both, 1.0, now / np.where(both, 1.0, before))
