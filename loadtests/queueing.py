"""What queueing theory says of a single server with Poisson arrivals: the yardstick of the known-answer tests."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Seconds = NDArray[np.float64]


def mm1_sojourn_s(share: float, *, rate_qps: float, service_s: float) -> float:
    """Return a quantile of the time in an M/M/1 system: exponential with rate μ − λ (Kleinrock 1975, 5.9)."""
    _check(rate_qps, service_s)
    return -math.log(1 - share) / (1 / service_s - rate_qps)


def md1_sojourn_s(share: float, *, rate_qps: float, service_s: float) -> float:
    """Return a quantile of the time in an M/D/1 system, in seconds.

    The waiting time's distribution is Franx's (2001), a sum of positive terms; the classical one of Erlang alternates
    and loses all digits in the tail.
    """
    _check(rate_qps, service_s)
    most = 50 * service_s
    while md1_waiting_cdf(most, rate_qps=rate_qps, service_s=service_s) < share:
        most *= 2
    if md1_waiting_cdf(0.0, rate_qps=rate_qps, service_s=service_s) >= share:
        return service_s
    wait_s = optimize.brentq(
        lambda wait: md1_waiting_cdf(wait, rate_qps=rate_qps, service_s=service_s) - share, 0.0, most
    )
    return float(wait_s) + service_s


def md1_waiting_cdf(wait_s: float, *, rate_qps: float, service_s: float) -> float:
    """Return the probability that an arrival at an M/D/1 system waits at most ``wait_s``."""
    load = rate_qps * service_s
    k = int(wait_s / service_s) + 1
    at_most = np.cumsum(_md1_in_system(k + 1, load))[1:]  # [k]: at most m waiting is at most m + 1 in the system
    terms: Seconds = stats.poisson.pmf(np.arange(k), rate_qps * (k * service_s - wait_s))
    return min(1.0, float(terms @ at_most[::-1]))


def lindley_s(arrivals_s: Seconds, services_s: Seconds | float) -> Seconds:
    """Return each query's time in a first-come-first-served single server (Lindley 1952).

    Args:
        arrivals_s: [queries], ascending.
        services_s: [queries], or one for all.
    """
    services = np.broadcast_to(np.asarray(services_s, dtype=np.float64), arrivals_s.shape)
    sojourns = np.empty_like(arrivals_s)
    free_s = -math.inf
    for query, (arrival_s, service_s) in enumerate(zip(arrivals_s, services, strict=True)):
        free_s = max(arrival_s, free_s) + service_s
        sojourns[query] = free_s - arrival_s
    return sojourns


def lindley_lines_s(arrivals_s: Seconds, services_s: Seconds, lines: NDArray[np.int64]) -> Seconds:
    """Return each query's time where every line is such a server of its own.

    Args:
        arrivals_s: [queries], ascending.
        services_s: [queries].
        lines: [queries], the line that each stood in.
    """
    sojourns = np.empty_like(arrivals_s)
    for line in np.unique(lines):
        mine = lines == line
        sojourns[mine] = lindley_s(arrivals_s[mine], services_s[mine])
    return sojourns


def quantile_interval(
    sojourns_s: Seconds, lines: NDArray[np.int64], share: float, *, seed: int = 0, draws: int = 2000
) -> tuple[float, float]:
    """Return a quantile's 95 % interval from a bootstrap that draws whole lines.

    Queries of one busy spell are late together, but lines know nothing of each other: so lines are what is drawn
    (Efron and Tibshirani 1993, 8.5).
    """
    rng = np.random.default_rng(seed)
    by_line = [sojourns_s[lines == line] for line in np.unique(lines)]
    picks = rng.integers(0, len(by_line), size=(draws, len(by_line)))
    found = [np.quantile(np.concatenate([by_line[i] for i in pick]), share, method="inverted_cdf") for pick in picks]
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def _md1_in_system(count: int, load: float) -> Seconds:
    """Return the probabilities of 0 … count − 1 in an M/D/1 system, by the chain embedded at departures."""
    arrivals = stats.poisson.pmf(np.arange(count + 1), load)
    found = np.zeros(count)
    found[0] = 1 - load
    for n in range(1, count):
        inflow = found[0] * arrivals[n - 1] + found[1:n] @ arrivals[n - 1 : 0 : -1]
        found[n] = (found[n - 1] - inflow) / arrivals[0]
    return np.maximum(found, 0.0)


def _check(rate_qps: float, service_s: float) -> None:
    if rate_qps * service_s >= 1:
        msg = f"a load of {rate_qps * service_s:.3g} has no steady state; help: keep rate × service time below 1"
        raise ValueError(msg)
