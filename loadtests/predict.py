"""What the model of a batch's time says of latency: the queue of a run, simulated on its own arrivals and texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.records import BatchTime

Floats = NDArray[np.float64]


def packed_sojourns_s(arrivals_s: Floats, tokens: Floats, time: BatchTime, *, per_text_s: float) -> Floats:
    """Return each query's time in a work-conserving server that packs whatever waits into one batch.

    Args:
        arrivals_s: [queries], ascending.
        tokens: [queries], of each text.
        time: of a batch: ``fixed_s`` + ``per_token_s`` × the sum of its tokens.
        per_text_s: CPU time of a query outside the batch (HTTP, tokenization) where both share one core, else 0.
    """
    sojourns = np.empty_like(arrivals_s)
    work_s = time.per_token_s * tokens + per_text_s
    first, free_s = 0, 0.0
    while first < len(arrivals_s):
        start_s = max(free_s, float(arrivals_s[first]))
        behind = max(first + 1, int(np.searchsorted(arrivals_s, start_s, side="right")))
        free_s = start_s + max(0.0, time.fixed_s) + float(work_s[first:behind].sum())
        sojourns[first:behind] = free_s - arrivals_s[first:behind]
        first = behind
    return sojourns


def tokens_by_length(lengths: NDArray[np.int64], mean_tokens: float) -> Floats:
    """Return tokens of texts whose characters are known, as many on average as the server counted.

    Args:
        lengths: [queries], characters of each text.
        mean_tokens: tokens a text over the run, by the server's own counters.
    """
    scale = mean_tokens / float(lengths.mean())
    return lengths.astype(np.float64) * scale


def error_of(predicted_s: list[float], measured_s: list[float]) -> float | None:
    """Return the median relative error; None for no pairs."""
    if not predicted_s:
        return None
    return float(np.median(np.abs(np.asarray(predicted_s) / np.asarray(measured_s) - 1)))
