"""The cost model: pure functions, no record and no file. Costs are in any one unit: usd, joules or grams.

What happens once (training, distilling, exporting) is ``fixed``; what every query costs is ``per_query``. Two lines
``fixed + per_query × n`` meet at most once, and every break-even and payback in the report is such a meeting.
The page recomputes the same functions in JavaScript (page/whatif.js); a test holds the two together.
"""

from __future__ import annotations

import math

SECONDS_PER_HOUR = 3600.0
HOURS_PER_MONTH = 730.0
JOULES_PER_KWH = 3.6e6


def rent_per_query(per_hour: float, qps: float) -> float:
    """Return what a query costs on a device that costs ``per_hour`` and answers ``qps`` queries a second."""
    return per_hour / SECONDS_PER_HOUR / qps


def total(fixed: float, per_query: float, queries: float) -> float:
    """Return what has been spent after ``queries``."""
    return fixed + per_query * queries


def break_even(fixed: float, per_query: float) -> float:
    """Return after how many queries serving has cost as much as was spent once.

    This is the parity of Luccioni et al. 2023, table 5: (training + fine-tuning) / inference a query.

    Raises:
        ValueError: a query that costs nothing never catches up.
    """
    if per_query <= 0:
        msg = f"a query must cost something, got {per_query:g}"
        raise ValueError(msg)
    return fixed / per_query


def payback(extra_fixed: float, per_query: float, baseline_per_query: float) -> float | None:
    """Return after how many queries an extra one-time cost is earned back by cheaper queries.

    Returns:
        Queries; 0 where nothing extra was spent; None where a query is not cheaper than the baseline's.
    """
    saving = baseline_per_query - per_query
    if saving <= 0:
        return None
    return max(0.0, extra_fixed) / saving


def replicas(peak_qps: float, max_qps_at_slo: float, peak_utilisation: float = 1.0) -> int:
    """Return how many replicas carry the peak within the SLO, each up to a share of what one was measured to carry."""
    return max(1, math.ceil(peak_qps / (max_qps_at_slo * peak_utilisation) - 1e-9))


def utilisation(mean_qps: float, num_replicas: int, max_qps_at_slo: float) -> float:
    """Return the share of the paid capacity that the mean traffic uses."""
    return mean_qps / (num_replicas * max_qps_at_slo)


def fleet_per_query(per_hour: float, num_replicas: int, mean_qps: float) -> float:
    """Return what a query costs when all replicas are always on and only ``mean_qps`` comes."""
    return rent_per_query(per_hour * num_replicas, mean_qps)


def power_w(idle_w: float, busy_w: float, busy_share: float) -> float:
    """Return the watts of a device that is busy for a share of the time; linear between idle and busy.

    The linear model of Fan, Weber and Barroso 2007; Cloud Carbon Footprint uses the same.
    """
    return idle_w + (busy_w - idle_w) * min(1.0, max(0.0, busy_share))


def idle_aware_j_per_query(
    idle_w: float, loaded_w: float, loaded_qps: float, num_replicas: float, mean_qps: float
) -> float:
    """Return joules a query with the idle time paid for.

    Args:
        idle_w: watts of one ready replica without queries.
        loaded_w: watts of one replica that answers ``loaded_qps``.
        loaded_qps: queries a second of that replica.
        num_replicas: always on.
        mean_qps: that comes to all of them.
    """
    marginal_j = max(0.0, loaded_w - idle_w) / loaded_qps
    return idle_w * num_replicas / mean_qps + marginal_j


def training_flops_6nd(num_parameters: float, num_tokens: float) -> float:
    """Return 6·N·D, the usual count of training operations (Kaplan 2020; used by Sardana et al. 2023)."""
    return 6.0 * num_parameters * num_tokens


def inference_flops_2nd(num_parameters: float, num_tokens: float) -> float:
    """Return 2·N·D for inference over ``num_tokens`` (Sardana et al. 2023)."""
    return 2.0 * num_parameters * num_tokens
