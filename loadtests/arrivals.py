"""Arrival times, drawn beforehand from a seed. Every process but ``trace`` gives exactly rate × duration arrivals.

Fixing the count takes the sampling noise of the offered load (3 % at 1,000 queries) out of every figure. The times of
a Poisson process are, given their count, independent and uniform (Cox and Lewis 1966, section 2.1); a modulated one
is the same in operational time.
"""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from loadtests.plan import Arrivals
from testbed.errors import UserError

Seconds = NDArray[np.float64]
LEAST_POINTS = 2  # of a curve


def draw(arrivals: Arrivals, *, rate_qps: float | None, duration_s: float, seed: int) -> Seconds:
    """Return ascending arrival times in seconds from the start of the run.

    Args:
        arrivals: the process.
        rate_qps: mean offered load (of ``steps``: the rate of a step of 1); a trace needs none.
        duration_s: length of the window; a trace has its own.
        seed: same seed, same times.

    Raises:
        UserError: a file that cannot be read as times or rates.
    """
    if arrivals.process == "trace":
        assert arrivals.file is not None
        return read_trace(arrivals.file)
    assert rate_qps is not None
    rng = np.random.default_rng(seed)
    if arrivals.process == "steps":
        rates = np.asarray(arrivals.steps)
        edges = np.linspace(0.0, duration_s, len(rates) + 1)
        return _modulated(edges, np.repeat(rates, 2), _count(rate_qps * float(rates.mean()), duration_s), rng)
    count = _count(rate_qps, duration_s)
    if arrivals.process == "curve":
        assert arrivals.file is not None
        seconds, rates = read_curve(arrivals.file)
        edges = (seconds - seconds[0]) / (seconds[-1] - seconds[0]) * duration_s
        return _modulated(edges, np.repeat(rates, 2)[1:-1], count, rng)
    return np.asarray(_gap_ends(arrivals, count, rng) * duration_s)


def read_curve(path: Path) -> tuple[Seconds, Seconds]:
    """Return the seconds (ascending) and rates of a CSV with the columns ``second`` and ``rate``."""
    seconds, rates = _column(path, "second"), _column(path, "rate")
    if len(seconds) < LEAST_POINTS or (np.diff(seconds) <= 0).any() or (rates < 0).any() or rates.sum() <= 0:
        msg = f"{path}: not a rate curve; help: at least two rows, seconds ascending, rates not negative"
        raise UserError(msg)
    return seconds, rates


def read_trace(path: Path) -> Seconds:
    """Return the recorded times of a CSV (``second``) or of raw rows (``scheduled_s``), sorted and from 0."""
    if path.suffix == ".parquet":
        times = pq.read_table(path, columns=["scheduled_s"])["scheduled_s"].to_numpy()
    else:
        times = _column(path, "second")
    if not len(times):
        msg = f"{path}: no times in this trace; help: one row an arrival, column second"
        raise UserError(msg)
    times = np.sort(times)
    return np.asarray(times - times[0], dtype=np.float64)


def _count(rate_qps: float, duration_s: float) -> int:
    return max(1, round(rate_qps * duration_s))


def _gap_ends(arrivals: Arrivals, count: int, rng: np.random.Generator) -> Seconds:
    """Return ``count`` arrival times in (0, 1): the gaps, and the one after the last arrival, scaled to 1."""
    if arrivals.process == "uniform":
        return np.asarray((np.arange(count) + 0.5) / count)
    cv = arrivals.cv if arrivals.process == "gamma" else 1.0
    gaps = rng.gamma(1 / cv**2, size=count + 1)
    # Rounding may carry the last one past the end.
    return np.asarray(np.minimum(np.cumsum(gaps)[:-1] / gaps.sum(), 1.0))


def _modulated(edges: Seconds, rates: Seconds, count: int, rng: np.random.Generator) -> Seconds:
    """Return arrivals of a Poisson process whose rate is linear between ``edges``.

    Args:
        edges: [n + 1] seconds.
        rates: [2 n], the rate at the start and at the end of each piece.
        count: how many arrivals.
        rng: draws them.
    """
    # A fine grid turns the integral of the rate into operational time, which np.interp inverts.
    grid = np.unique(np.concatenate([np.linspace(a, b, 64) for a, b in itertools.pairwise(edges)]))
    middle = (grid[:-1] + grid[1:]) / 2
    piece = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(edges) - 2)
    share = (middle - edges[piece]) / (edges[piece + 1] - edges[piece])
    rate = rates[2 * piece] * (1 - share) + rates[2 * piece + 1] * share
    operational = np.concatenate([[0.0], np.cumsum(rate * np.diff(grid))])
    picks = np.sort(rng.uniform(0.0, operational[-1], size=count))
    return np.asarray(np.interp(picks, operational, grid), dtype=np.float64)


def _column(path: Path, name: str) -> Seconds:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return np.asarray([float(row[name]) for row in csv.DictReader(stream)], dtype=np.float64)
    except (OSError, KeyError, TypeError, ValueError) as error:
        msg = f"{path}: no numbers in a column {name!r} ({error!r}); help: CSV with a header row"
        raise UserError(msg) from error
