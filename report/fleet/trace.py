"""The raw rows of a load test, read as what one replica did: which queries made which batch, and when.

The server tells each answered query, by Server-Timing, how long it waited, how long its batch took and how long it was
there in all. The queries of one batch carry the same batch time to the microsecond, so the batches can be put together
again; and as all of them began at one moment, what each spent on its way in and on its way out can be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from testbed.errors import UserError

TIMING = re.compile(r"([\w-]+)\s*;\s*dur=([\d.]+)")
LANE_PARTS = ("tokenize", "batch", "compute")
REFUSED = "http_503"
# The quickest way through the network, both directions; half of it is a way in.
QUICK_SHARE = 0.05
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """The queries of one load test, in the order in which they were sent.

    Attributes:
        sent_s, tokens: [queries], seconds from the run's first moment.
        latency_s: [queries], from sending (a fleet has no generator's lag); infinity for a refused query.
        batches: those of the answered queries, by their begin.
        in_s, out_s: [answered], in order of sending: from sending until the query waits, and from its batch's end until
            the client has the answer (delivery, event loop, network).
        mates: [answered], texts of the query's batch, its own counted.
    """

    sent_s: Floats
    tokens: Ints
    latency_s: Floats
    batches: tuple[Batch, ...]
    in_s: Floats
    out_s: Floats
    mates: Ints

    @property
    def answered_s(self) -> Floats:
        """Latencies of the answered queries, ascending."""
        return np.sort(self.latency_s[np.isfinite(self.latency_s)])

    @property
    def refused_share(self) -> float:
        """Queries that were refused."""
        return float(np.isinf(self.latency_s).mean())


@dataclass(frozen=True)
class Batch:
    """One batch that was run.

    Attributes:
        begin_s, seconds: on the clock of the trace.
        tokens, texts: that it held.
        first_arrived_s, first_tokens: of its oldest query.
        out_s: mean of its queries' ways out.
    """

    begin_s: float
    seconds: float
    tokens: int
    texts: int
    first_arrived_s: float
    first_tokens: int
    out_s: float

    @property
    def end_s(self) -> float:
        """When the lane was done with it."""
        return self.begin_s + self.seconds


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
    sent_s, done_s = table["sent_s"].to_numpy(), table["done_s"].to_numpy()
    errors = table["error"].to_pylist()
    told = [
        _parts(header) if error is None else None
        for header, error in zip(table["server_timing"].to_pylist(), errors, strict=True)
    ]
    answered = np.asarray([parts is not None for parts in told], dtype=np.bool_)
    if not answered.any():
        msg = f"{path}: no answer carries Server-Timing; help: the batch-time model needs a server that sends it"
        raise UserError(msg)
    refused = np.asarray([error is not None and error.startswith(REFUSED) for error in errors], dtype=np.bool_)
    latency_s = np.where(answered, done_s - sent_s, np.inf)
    order = np.flatnonzero(answered | refused)
    order = order[np.argsort(sent_s[order], kind="stable")]
    tokens = token_counts[table["text"].to_numpy()[order] % len(token_counts)]
    has = answered[order]
    parts = np.asarray([told[index] for index in order[has]])
    return Trace(
        sent_s[order],
        tokens,
        latency_s[order],
        *_take_apart(sent_s[order][has], latency_s[order][has], tokens[has], parts),
    )


def _parts(header: str | None) -> tuple[float, float, float] | None:
    """Return seconds in the queue, in the batch and in all, or None without them."""
    if header is None:
        return None
    told = {name: float(milliseconds) / 1e3 for name, milliseconds in TIMING.findall(header)}
    if "queue" not in told or "compute" not in told:
        return None
    lane_s = sum(told.get(name, 0.0) for name in LANE_PARTS)
    return told["queue"], lane_s, told.get("total", told["queue"] + lane_s)


def _take_apart(
    sent_s: Floats, latency_s: Floats, tokens: Ints, parts: Floats
) -> tuple[tuple[Batch, ...], Floats, Floats, Ints]:
    """Return the batches, and each query's way in and out and how many were in its batch.

    All of a batch's queries began together: sent + way in + queue is one moment for them. The quickest of them is
    given the quickest way in that the network allows.
    """
    queue_s, lane_s, total_s = parts.T
    quickest_s = max(0.0, float(np.quantile(latency_s - total_s, QUICK_SHARE))) / 2
    batches = []
    in_s, out_s, mates = np.empty_like(sent_s), np.empty_like(sent_s), np.empty_like(tokens)
    for members in _groups(sent_s + queue_s, lane_s):
        begin_s = float((sent_s + queue_s)[members].max()) + quickest_s
        in_s[members] = begin_s - queue_s[members] - sent_s[members]
        out_s[members] = latency_s[members] - (begin_s + lane_s[members] - sent_s[members])
        mates[members] = len(members)
        first = members[np.argmin(begin_s - queue_s[members])]
        batches.append(
            Batch(
                begin_s=begin_s,
                seconds=float(lane_s[first]),
                tokens=int(tokens[members].sum()),
                texts=len(members),
                first_arrived_s=begin_s - float(queue_s[first]),
                first_tokens=int(tokens[first]),
                out_s=float(out_s[members].mean()),
            )
        )
    return tuple(sorted(batches, key=lambda batch: batch.begin_s)), in_s, out_s, mates


def _groups(begin_s: Floats, lane_s: Floats) -> Sequence[Ints]:
    """Return the indices of the queries of each batch: the same batch time, begun at the same moment."""
    order = np.lexsort((begin_s, lane_s))
    lane = lane_s[order]
    cuts = np.flatnonzero((np.diff(lane) > 0) | (np.diff(begin_s[order]) > lane[1:])) + 1
    groups: Sequence[Ints] = np.split(order, cuts)
    return groups
