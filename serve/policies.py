"""Which waiting rows make the next batch. Each policy is a pure function of the rows, oldest first."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from serve.jobs import Row

# The sorted policy looks this many rows past the oldest for texts of a similar length.
WINDOW_ROWS = 64


class Policy(Protocol):
    """How batches are made.

    Attributes:
        packed: the batch is run in the packed layout.
        max_texts: texts in a batch at most.
        max_tokens: tokens in a batch at most; a single text may exceed it.
        delay_s: how long the oldest row waits for company; 0 = the batch starts as soon as the backend is idle.
    """

    packed: bool
    max_texts: int
    max_tokens: int
    delay_s: float

    def choose(self, rows: deque[Row], *, max_tokens: int, max_texts: int) -> list[Row]:
        """Take rows out of ``rows`` (never none) and return them."""
        ...


@dataclass
class InOrder:
    """The oldest rows that fit: ``none`` (one text), ``fixed`` (a size and a delay) and ``packed`` (a token budget).

    First in, first out: neither long nor short texts are passed over.
    """

    packed: bool
    max_texts: int
    max_tokens: int
    delay_s: float = 0.0

    def choose(self, rows: deque[Row], *, max_tokens: int, max_texts: int) -> list[Row]:
        """Take the oldest rows while they fit; the first one always does."""
        chosen = [rows.popleft()]
        tokens = chosen[0].weight
        while rows and len(chosen) < max_texts and tokens + rows[0].weight <= max_tokens:
            tokens += rows[0].weight
            chosen.append(rows.popleft())
        return chosen


@dataclass
class ByLength:
    """The oldest row and those of its neighbours in length that fit, padding counted: ``sorted``.

    The oldest row is in every batch, so none waits for ever.
    """

    max_texts: int
    max_tokens: int
    packed: bool = False
    delay_s: float = 0.0

    def choose(self, rows: deque[Row], *, max_tokens: int, max_texts: int) -> list[Row]:
        """Take the oldest row and the nearest in length, while longest × texts stays within the budget."""
        oldest = rows.popleft()
        window = sorted(list(rows)[:WINDOW_ROWS], key=lambda row: abs(row.weight - oldest.weight))
        chosen, longest = [oldest], oldest.weight
        for row in window:
            longest = max(longest, row.weight)
            if len(chosen) == max_texts or longest * (len(chosen) + 1) > max_tokens:
                break
            chosen.append(row)
        taken = set(map(id, chosen))
        rest = [row for row in rows if id(row) not in taken]
        rows.clear()
        rows.extend(rest)
        return chosen
