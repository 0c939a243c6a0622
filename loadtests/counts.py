"""What this project's server counts, by the names of its ``/metrics``; a server that shows none of it has no counts."""

from __future__ import annotations

from dataclasses import dataclass

from loadtests.scrape import Counters

REQUESTS = "breakeven_requests_total"
BATCHES = "breakeven_batch_texts_count"
BATCHED_TEXTS = "breakeven_batch_texts_sum"
COMPUTE_SECONDS = "breakeven_compute_seconds_total"
COMPUTED_TOKENS = "breakeven_computed_tokens_total"


@dataclass(frozen=True)
class ServerCounts:
    """The growth of a server's counters over a run; None where it has no such counter."""

    requests: float | None = None
    ok: float | None = None
    mean_batch_texts: float | None = None
    padding_ratio: float | None = None
    batches: float | None = None
    computed_tokens: float | None = None
    compute_s: float | None = None


def counts_between(before: Counters | None, after: Counters | None) -> ServerCounts:
    """Return what the counters grew by between two readings."""
    if before is None or after is None:
        return ServerCounts()
    batches, texts = after.since(before, BATCHES), after.since(before, BATCHED_TEXTS)
    padding, computed = after.since(before, COMPUTED_TOKENS, kind="padding"), after.since(before, COMPUTED_TOKENS)
    return ServerCounts(
        requests=after.since(before, REQUESTS),
        ok=after.since(before, REQUESTS, status="200"),
        mean_batch_texts=texts / batches if batches and texts else None,
        padding_ratio=padding / computed if computed and padding is not None else None,
        batches=batches,
        computed_tokens=computed,
        compute_s=after.since(before, COMPUTE_SECONDS),
    )
