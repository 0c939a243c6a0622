"""A traffic curve: a CSV file of times and queries a second, joined by straight lines."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from report.fleet.trace import Floats
from testbed.errors import UserError

SECONDS_PER_DAY = 86400.0
TIME_UNITS = {"time_s": 1.0, "minute": 60.0, "hour": 3600.0}
MIN_ROWS = 2


@dataclass(frozen=True)
class Curve:
    """Offered load over time; ``times_s`` begin at 0 and ascend, ``qps`` are joined by straight lines."""

    times_s: Floats
    qps: Floats

    @property
    def span_s(self) -> float:
        """Seconds that the curve covers."""
        return float(self.times_s[-1])

    @property
    def mean_qps(self) -> float:
        """Queries over seconds."""
        return float(np.trapezoid(self.qps, self.times_s)) / self.span_s

    def at(self, time_s: Floats) -> Floats:
        """Return queries a second at some times; before the first and after the last the curve is flat."""
        return np.interp(time_s, self.times_s, self.qps)

    def scaled(self, queries_per_day: float) -> Curve:
        """Return the same shape with so many queries a day."""
        return Curve(self.times_s, self.qps * (queries_per_day / SECONDS_PER_DAY / self.mean_qps))


def read_curve(path: Path) -> Curve:
    """Read a CSV file with a header: ``time_s``, ``minute`` or ``hour``, and ``qps``.

    Raises:
        UserError: unreadable, a column is missing, times that do not ascend, negative load, or no traffic at all.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        msg = f"{path}: not a readable CSV file ({error}); help: two columns, such as hour,qps"
        raise UserError(msg) from error
    column = next((name for name in TIME_UNITS if rows and name in rows[0]), None)
    if column is None or "qps" not in rows[0]:
        msg = f"{path}: the header must name qps and one of {', '.join(TIME_UNITS)}; help: such as hour,qps"
        raise UserError(msg)
    try:
        times = np.asarray([float(row[column]) for row in rows]) * TIME_UNITS[column]
        qps = np.asarray([float(row["qps"]) for row in rows])
    except (TypeError, ValueError) as error:
        msg = f"{path}: a cell is not a number ({error}); help: plain decimals, a point for the fraction"
        raise UserError(msg) from error
    _check(path, times, qps)
    return Curve(times - times[0], qps)


def _check(path: Path, times: Floats, qps: Floats) -> None:
    fault = None
    if len(times) < MIN_ROWS or not np.all(np.diff(times) > 0):
        fault = "times must ascend, at least two rows"
    elif not np.isfinite(qps).all() or (qps < 0).any():
        fault = "queries a second must be finite and not negative"
    elif not (qps > 0).any():
        fault = "there is no traffic at all"
    if fault:
        msg = f"{path}: {fault}; help: one row a time, such as hour,qps"
        raise UserError(msg)
