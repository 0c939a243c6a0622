"""How long a batch takes: measured at warm-up, fitted as a + b·tokens + c·tokens², kept up to date while serving.

a is what every batch costs, b what a token costs, and c stands for attention within a row and for what leaves the
caches as rows grow; without c the largest batch would always seem the best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

# What a batch costs outside the model and its curve, once for all of its texts: wake-ups, the hand-over between lane
# and event loop, caches gone cold meanwhile. Measured on a saturated core with token budgets from 80 to 260: the event
# loop's CPU a text falls by about this much over the texts of a batch.
HAND_OVER_S = 0.2e-3
LEAST_ROUNDS, MOST_ROUNDS, MEASURE_S = 3, 20, 2.0
# Weight of the newest batch in the running ratio of observed to predicted time.
DRIFT_WEIGHT = 0.05
DRIFT_BOUNDS = (0.5, 8.0)
DRIFT_MEMORY_S = 1.0


@dataclass(frozen=True)
class Sample:
    """One measured batch: its tokens (padding counted), its texts and its seconds."""

    tokens: int
    texts: int
    seconds: float


class BatchCurve:
    """Predicts the seconds of a batch from its tokens.

    Args:
        samples: batches of at least one size.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = tuple(samples)
        self.fixed_s, self.per_token_s, self.per_square_s = _fit(self.samples)
        self._drift = 1.0
        self._seen_s = time.monotonic()

    @property
    def drift(self) -> float:
        """Observed over predicted time, lately. Without news it goes back to 1: a bad moment must not be for ever.

        Else a server that refuses everything because it was slow once would never see that it is quick again.
        """
        age = (time.monotonic() - self._seen_s) / DRIFT_MEMORY_S
        return 1.0 + (self._drift - 1.0) * math.exp(-age)

    def tokens_within(self, seconds: float) -> int:
        """Return how many tokens one batch may have to take at most so long; 0 where none can."""
        left_s = seconds / self.drift - self.fixed_s
        if left_s <= 0:
            return 0
        # The root of c·n² + b·n = left, in the form that also holds for c = 0.
        b, c = self.per_token_s, self.per_square_s
        return int(2 * left_s / (b + math.sqrt(b * b + 4 * c * left_s)))

    def seconds(self, tokens: float, *, batches: float = 1.0) -> float:
        """Return the predicted seconds of ``tokens`` in so many batches, at the speed seen lately."""
        measured_s = self.fixed_s * batches + self.per_token_s * tokens + self.per_square_s * tokens * tokens / batches
        return self.drift * measured_s

    def observe(self, tokens: int, seconds: float) -> None:
        """Move the running ratio of observed to predicted time by one batch."""
        drift = self.drift
        ratio = seconds * drift / max(self.seconds(tokens), 1e-6)
        moved = (1 - DRIFT_WEIGHT) * drift + DRIFT_WEIGHT * min(ratio, DRIFT_BOUNDS[1])
        self._drift, self._seen_s = max(moved, DRIFT_BOUNDS[0]), time.monotonic()

    def best_tokens(self, *, within_s: float) -> int:
        """Return the batch of the best rate, its hand-over counted, of the measured range and of at most ``within_s``.

        By the fitted curve, not by single measurements: two starts on one machine so come to the same budget. Where no
        batch is that quick, it is the smallest one that was measured.
        """
        measured = [sample.tokens for sample in self.samples]
        tokens = np.arange(min(measured), max(measured) + 1)
        seconds = self.fixed_s + self.per_token_s * tokens + self.per_square_s * tokens**2
        rates = np.where(seconds <= within_s, tokens / (HAND_OVER_S + seconds), 0.0)
        return int(tokens[rates.argmax()])


def ladder(lengths: Sequence[int], *, max_texts: int) -> list[list[int]]:
    """Return batches of text lengths to measure: 1, 2, 3, 4, 6, 8, 12, … texts, each of the real length mix.

    Args:
        lengths: token counts of real texts, sorted, as the manifest has them.
        max_texts: the largest batch.
    """
    sizes = sorted({size for power in range(12) for size in (2**power, 3 * 2**power) if size <= max_texts})
    return [[lengths[int((i + 0.5) * len(lengths) / size)] for i in range(size)] for size in sizes]


def measure(
    run: Callable[[Sequence[str]], int],
    batches: Sequence[Sequence[int]],
    words: Sequence[str],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Sample]:
    """Run every batch in turn, a first time unmeasured and then again and again, and return each one's typical time.

    What slows a machine down (a busy neighbour on the same core, a lower clock) mostly meets a whole round alike. So
    each size's share of its round is taken, its median over the rounds, times the quickest round: whatever else the
    machine does only ever adds.

    Args:
        run: runs a batch of texts, tokenization included, and returns how many tokens were computed, padding counted.
        batches: text lengths in tokens.
        words: of real texts; what the batches' texts are made of.
        clock: seconds; where one thread does all the work its own CPU time, which a busy machine disturbs less.
    """
    made = [_batch_of(lengths, words) for lengths in batches]
    computed = [run(batch) for batch in made]
    rounds: list[list[float]] = []
    begin_s = time.perf_counter()
    while len(rounds) < MOST_ROUNDS and (len(rounds) < LEAST_ROUNDS or time.perf_counter() - begin_s < MEASURE_S):
        rounds.append([_seconds_of(run, batch, clock) for batch in made])
    return [
        Sample(tokens=tokens, texts=len(batch), seconds=seconds)
        for tokens, batch, seconds in zip(computed, made, typical(rounds), strict=True)
    ]


def typical(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the typical seconds of each batch: median share of a round, times the quickest round."""
    table = np.array(rounds)
    totals = table.sum(axis=1, keepdims=True)
    found: list[float] = (np.median(table / totals, axis=0) * totals.min()).tolist()
    return found


def _seconds_of(run: Callable[[Sequence[str]], int], batch: Sequence[str], clock: Callable[[], float]) -> float:
    before_s = clock()
    run(batch)
    return clock() - before_s


def _batch_of(lengths: Sequence[int], words: Sequence[str]) -> list[str]:
    """Return texts of about these lengths: a word is about a token, and two tokens are special."""
    supply = cycle(words)
    return [" ".join(next(supply) for _ in range(max(1, length - 2))) for length in lengths]


def _fit(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Return a, b and c of least squares over relative errors, none below zero, b above it."""
    tokens = np.array([sample.tokens for sample in samples], dtype=np.float64)
    seconds = np.array([sample.seconds for sample in samples], dtype=np.float64)
    for terms in ((0, 1, 2), (0, 1), (1, 2)):
        if len(samples) >= len(terms):
            found = _least_squares(tokens, seconds, terms)
            if found.min() >= 0 and found[1] > 0:
                return float(found[0]), float(found[1]), float(found[2])
    return 0.0, float((seconds / tokens).mean()), 0.0


def _least_squares(
    tokens: NDArray[np.float64], seconds: NDArray[np.float64], terms: Sequence[int]
) -> NDArray[np.float64]:
    """Return the factors of tokens⁰, tokens¹ and tokens²; those that are not among the terms are 0."""
    design = np.stack([tokens**power / seconds for power in terms], axis=1)
    factors = np.zeros(3)
    factors[list(terms)] = np.linalg.lstsq(design, np.ones(len(tokens)), rcond=None)[0]
    return factors
