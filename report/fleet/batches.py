"""The batch-time model, fitted to the raw rows of load tests: a batch's seconds from its tokens and texts.

The server tells each query, by Server-Timing, how long it waited and how long its batch took; the queries of one
batch carry the same figures to the microsecond, so the batches can be put together again. Their time is

    seconds = fixed + per_token × tokens + per_text × texts,

fitted by non-negative least squares with an error relative to the fitted time, times a factor drawn from the
residuals that were seen.
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
        sent_s, latency_s: [queries], from the run's first moment; latency from the scheduled time.
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
        gaps_s: between two batches when queries wait, to draw from.
        wakes_s: from the arrival of a query at an idle lane to the begin of its batch, to draw from.
        outside_s: of a query, outside the queue and the batch (network, event loop), to draw from.
        factors: observed over fitted batch seconds, to draw from.
        max_texts, max_tokens: of the largest batches that were seen.
        tokens: token counts of real queries, to draw from.
        num_batches: that the fit rests on.
    """

    fixed_s: float
    per_token_s: float
    per_text_s: float
    gaps_s: Floats
    wakes_s: Floats
    outside_s: Floats
    factors: Floats
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
    table = pq.read_table(path, columns=["text", "scheduled_s", "sent_s", "done_s", "error", "server_timing"])
    sent, done = table["sent_s"].to_numpy(), table["done_s"].to_numpy()
    told = [_parts(header) for header in table["server_timing"].to_pylist()]
    right = np.asarray([error is None for error in table["error"].to_pylist()])
    keep = right & np.asarray([parts is not None for parts in told], dtype=np.bool_)
    if not keep.any():
        msg = f"{path}: no answer carries Server-Timing; help: the batch-time model needs a server that sends it"
        raise UserError(msg)
    parts = np.asarray([each for each, kept in zip(told, keep, strict=True) if kept])
    order = np.argsort(sent[keep], kind="stable")
    latency = (done - table["scheduled_s"].to_numpy())[keep]
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
    factors = seconds / (design @ weights)
    gaps_s, wakes_s = _between(batches)
    several = [batch.tokens for batch in batches if batch.texts > 1]
    return BatchModel(
        fixed_s=float(weights[0]),
        per_token_s=float(weights[1]),
        per_text_s=float(weights[2]),
        gaps_s=gaps_s,
        wakes_s=wakes_s,
        outside_s=np.maximum(0.0, np.concatenate([trace.outside_s for trace in traces])),
        factors=factors,
        max_texts=max(batch.texts for batch in batches),
        max_tokens=max([*several, max(batch.tokens for batch in batches)]),
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
        )
        for members in np.split(order, cuts)
    ]
    return sorted(found, key=lambda batch: batch.begin_s)


def _between(batches: Sequence[_Batch]) -> tuple[Floats, Floats]:
    """Return the times between a batch and the next one whose queries already waited, and how long an idle lane took.

    An idle lane's first query came after the batch before had ended; the time until its batch begins is the hand-over
    from the event loop to the lane. Each is a single 0 where it was never seen.
    """
    gaps, wakes = [], []
    for before, after in pairwise(batches):
        end_s = before.begin_s + before.seconds
        if after.first_sent_s >= end_s:
            wakes.append(after.begin_s - after.first_sent_s)
        elif after.begin_s >= end_s:
            gaps.append(after.begin_s - end_s)
    return np.asarray(gaps or [0.0]), np.asarray(wakes or [0.0])


def _parts(header: str | None) -> tuple[float, float] | None:
    """Return seconds in the queue and in the batch, or None without them."""
    if header is None:
        return None
    told = {name: float(milliseconds) / 1e3 for name, milliseconds in TIMING.findall(header)}
    if "queue" not in told or "compute" not in told:
        return None
    return told["queue"], sum(told.get(name, 0.0) for name in LANE_PARTS)
