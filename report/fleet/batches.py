"""The batch-time model, fitted to the raw rows of load tests: a batch's seconds from its tokens and texts.

The server tells each query, by Server-Timing, how long it waited and how long its batch took; the queries of one
batch carry the same figures to the microsecond, so the batches can be put together again. Their time is

    seconds = fixed + per_token × tokens + per_text × texts,

fitted by non-negative least squares with an error relative to the fitted time, plus what was seen beyond the fit:
what disturbs a batch (another process on its core, a hand-over) takes the same time from a small one as from a large.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import optimize

from testbed.errors import UserError

TIMING = re.compile(r"([\w-]+)\s*;\s*dur=([\d.]+)")
LANE_PARTS = ("tokenize", "batch", "compute")
MIN_BATCHES = 30
REWEIGHTINGS = 6
LEAST_S = 1e-6
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """The answered queries of one load test, in the order in which they were sent.

    Attributes:
        sent_s, latency_s: [queries], from the run's first moment; latency from sending: a fleet has no generator's lag.
        tokens: [queries].
        queue_s, lane_s, outside_s: [queries], waiting, batch time, and what the server does not account for.
    """

    sent_s: Floats
    latency_s: Floats
    tokens: Ints
    queue_s: Floats
    lane_s: Floats
    outside_s: Floats


@dataclass(frozen=True)
class BatchModel:
    """What one replica does with its queue.

    Attributes:
        fixed_s, per_token_s, per_text_s: seconds of a batch.
        gap_s: between two batches when queries wait.
        wakes_s: from the arrival of a query at an idle lane to the begin of its batch, to draw from.
        outside_s: of a query, outside the queue and the batch (network, event loop), to draw from.
        extras_s: observed minus fitted batch seconds, to draw from.
        max_texts: of the largest batch that was seen.
        max_tokens: of a batch, as the full ones show it.
        tokens: token counts of real queries, to draw from.
        num_batches: that the fit rests on.
    """

    fixed_s: float
    per_token_s: float
    per_text_s: float
    gap_s: float
    wakes_s: Floats
    outside_s: Floats
    extras_s: Floats
    max_texts: int
    max_tokens: int
    tokens: Ints
    num_batches: int

    def seconds(self, tokens: float, texts: float) -> float:
        """Return the fitted seconds of a batch."""
        return self.fixed_s + self.per_token_s * tokens + self.per_text_s * texts


def read_trace(path: Path, token_counts: Ints) -> Trace:
    """Read the raw rows of a load test.

    Args:
        path: Parquet file beside the record.
        token_counts: [texts], tokens of each text that the generator sent, by its index.

    Raises:
        UserError: the rows are missing, or the server told no timings.
    """
    if not path.is_file():
        msg = f"{path}: the raw rows are missing; help: keep the .parquet files beside the load-test records"
        raise UserError(msg)
    table = pq.read_table(path, columns=["text", "sent_s", "done_s", "error", "server_timing"])
    sent, done = table["sent_s"].to_numpy(), table["done_s"].to_numpy()
    told = [_parts(header) for header in table["server_timing"].to_pylist()]
    right = np.asarray([error is None for error in table["error"].to_pylist()])
    keep = right & np.asarray([parts is not None for parts in told], dtype=np.bool_)
    if not keep.any():
        msg = f"{path}: no answer carries Server-Timing; help: the batch-time model needs a server that sends it"
        raise UserError(msg)
    parts = np.asarray([each for each, kept in zip(told, keep, strict=True) if kept])
    order = np.argsort(sent[keep], kind="stable")
    latency = (done - sent)[keep]
    return Trace(
        sent_s=sent[keep][order],
        latency_s=latency[order],
        tokens=token_counts[table["text"].to_numpy()[keep] % len(token_counts)][order],
        queue_s=parts[order, 0],
        lane_s=parts[order, 1],
        outside_s=((done - sent)[keep] - parts.sum(axis=1))[order],
    )


def fit(traces: Sequence[Trace]) -> BatchModel:
    """Fit the model to the batches of several load tests of one variant on one profile.

    Raises:
        UserError: fewer than 30 batches.
    """
    batches = [batch for trace in traces for batch in _batches(trace)]
    if len(batches) < MIN_BATCHES:
        msg = f"only {len(batches)} batches were seen, {MIN_BATCHES} are needed; help: run longer load tests"
        raise UserError(msg)
    seconds = np.asarray([batch.seconds for batch in batches])
    design = np.asarray([[1.0, batch.tokens, batch.texts] for batch in batches])
    weights = _fit_relative(design, seconds)
    extras_s = seconds - design @ weights
    return BatchModel(
        fixed_s=float(weights[0]),
        per_token_s=float(weights[1]),
        per_text_s=float(weights[2]),
        gap_s=_gap_s(batches),
        wakes_s=_wakes_s(batches),
        outside_s=np.maximum(0.0, np.concatenate([trace.outside_s for trace in traces])),
        extras_s=extras_s,
        max_texts=max(batch.texts for batch in batches),
        max_tokens=_budget(batches),
        tokens=np.concatenate([trace.tokens for trace in traces]),
        num_batches=len(batches),
    )


def _fit_relative(design: Floats, seconds: Floats) -> Floats:
    """Return non-negative weights that fit with an error relative to the fitted value.

    Dividing by the observed value instead would pull the fit down: a batch that happened to be quick would count more.
    """
    fitted = seconds
    for _ in range(REWEIGHTINGS):
        weights, _ = optimize.nnls(design / fitted[:, None], seconds / fitted)
        fitted = np.maximum(design @ weights, LEAST_S)
    return weights


@dataclass(frozen=True)
class _Batch:
    begin_s: float
    seconds: float
    tokens: int
    texts: int
    first_sent_s: float
    first_tokens: int


def _batches(trace: Trace) -> list[_Batch]:
    """Put the batches together: queries with the same batch time that began at the same moment."""
    begin_s = trace.sent_s + trace.queue_s
    order = np.lexsort((begin_s, trace.lane_s))
    lane = trace.lane_s[order]
    cuts = np.flatnonzero((np.diff(lane) > 0) | (np.diff(begin_s[order]) > lane[1:])) + 1
    found = [
        _Batch(
            begin_s=float(begin_s[members].min()),
            seconds=float(trace.lane_s[members[0]]),
            tokens=int(trace.tokens[members].sum()),
            texts=len(members),
            first_sent_s=float(trace.sent_s[members].min()),
            first_tokens=int(trace.tokens[members.min()]),
        )
        for members in np.split(order, cuts)
    ]
    return sorted(found, key=lambda batch: batch.begin_s)


def _budget(batches: Sequence[_Batch]) -> int:
    """Return how many tokens a batch may hold.

    The server weighs texts before it tokenizes them, so its own budget is in other units. But a batch that left the
    next text waiting held less than the budget, and with that text would have held more: the median of the middle
    between the two is taken. Where no batch was ever full, it is the largest one.
    """
    full = [
        before.tokens + after.first_tokens / 2
        for before, after in pairwise(batches)
        if after.first_sent_s < before.begin_s
    ]
    if len(full) < MIN_BATCHES:
        return max(batch.tokens for batch in batches)
    return round(float(np.median(full)))


def _gap_s(batches: Sequence[_Batch]) -> float:
    """Return the mean time between a batch and the next one whose queries already waited when it began.

    Single differences carry the jitter of the network, both ways: only their mean says something.
    """
    gaps = [
        after.begin_s - before.begin_s - before.seconds
        for before, after in pairwise(batches)
        if after.first_sent_s < before.begin_s
    ]
    return max(0.0, float(np.mean(gaps))) if gaps else 0.0


def _wakes_s(batches: Sequence[_Batch]) -> Floats:
    """Return how long an idle lane took from a query's sending to its batch, less what any query spends outside.

    An idle lane's first query came after the batch before had ended. A single 0 where that was never seen.
    """
    wakes = [
        after.begin_s - after.first_sent_s
        for before, after in pairwise(batches)
        if after.first_sent_s >= before.begin_s + before.seconds
    ]
    return np.asarray(wakes or [0.0])


def _parts(header: str | None) -> tuple[float, float] | None:
    """Return seconds in the queue and in the batch, or None without them."""
    if header is None:
        return None
    told = {name: float(milliseconds) / 1e3 for name, milliseconds in TIMING.findall(header)}
    if "queue" not in told or "compute" not in told:
        return None
    return told["queue"], sum(told.get(name, 0.0) for name in LANE_PARTS)
