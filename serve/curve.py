"""How long a batch takes: measured at warm-up, fitted as a + b·tokens, kept up to date while serving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

# The largest batch within this share of the best rate is the budget: what a batch costs outside the model (wake-ups,
# hand-over to the event loop, caches gone cold meanwhile) is not in the curve, and is paid once for all of its texts.
NEAR_BEST = 0.9
LEAST_ROUNDS, MOST_ROUNDS, MEASURE_S = 2, 20, 1.0
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
        self.fixed_s, self.per_token_s = _fit(self.samples)
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
        return max(0, int((seconds / self.drift - self.fixed_s) / self.per_token_s))

    def seconds(self, tokens: int, *, batches: float = 1.0) -> float:
        """Return the predicted seconds of ``tokens`` in so many batches, at the speed seen lately."""
        return self.drift * (self.fixed_s * batches + self.per_token_s * tokens)

    def observe(self, tokens: int, seconds: float) -> None:
        """Move the running ratio of observed to predicted time by one batch."""
        ratio = seconds / max(self.fixed_s + self.per_token_s * tokens, 1e-6)
        moved = (1 - DRIFT_WEIGHT) * self.drift + DRIFT_WEIGHT * min(ratio, DRIFT_BOUNDS[1])
        self._drift, self._seen_s = max(moved, DRIFT_BOUNDS[0]), time.monotonic()

    def best_tokens(self, *, within_s: float) -> int:
        """Return the largest measured batch near the best rate whose time is at most ``within_s``.

        Where no measured batch is that quick, the smallest one is returned.
        """
        allowed = [sample for sample in self.samples if sample.seconds <= within_s]
        if not allowed:
            return min(self.samples, key=lambda sample: sample.tokens).tokens
        best = max(sample.tokens / sample.seconds for sample in allowed)
        return max(sample.tokens for sample in allowed if sample.tokens / sample.seconds >= NEAR_BEST * best)


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
    """Run every batch in turn, a first time unmeasured and then again and again, and return each one's least time.

    Rounds over all sizes, and the least time of each, because whatever else the machine does only ever adds.

    Args:
        run: runs a batch of texts, tokenization included, and returns how many tokens were computed, padding counted.
        batches: text lengths in tokens.
        words: of real texts; what the batches' texts are made of.
        clock: seconds; where one thread does all the work its own CPU time, which a busy machine disturbs less.
    """
    made = [_batch_of(lengths, words) for lengths in batches]
    computed = [run(batch) for batch in made]
    least_s = [math.inf] * len(made)
    begin_s = time.perf_counter()
    for round_number in range(MOST_ROUNDS):
        if round_number >= LEAST_ROUNDS and time.perf_counter() - begin_s > MEASURE_S:
            break
        for number, batch in enumerate(made):
            before_s = clock()
            run(batch)
            least_s[number] = min(least_s[number], clock() - before_s)
    return [
        Sample(tokens=tokens, texts=len(batch), seconds=seconds)
        for tokens, batch, seconds in zip(computed, made, least_s, strict=True)
    ]


def _batch_of(lengths: Sequence[int], words: Sequence[str]) -> list[str]:
    """Return texts of about these lengths: a word is about a token, and two tokens are special."""
    supply = cycle(words)
    return [" ".join(next(supply) for _ in range(max(1, length - 2))) for length in lengths]


def _fit(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return a and b of least squares over relative errors, neither below zero."""
    tokens = np.array([sample.tokens for sample in samples], dtype=np.float64)
    seconds = np.array([sample.seconds for sample in samples], dtype=np.float64)
    design = np.stack([1 / seconds, tokens / seconds], axis=1)
    fixed_s, per_token_s = np.linalg.lstsq(design, np.ones(len(samples)), rcond=None)[0]
    if fixed_s < 0 or per_token_s <= 0:
        return 0.0, float((seconds / tokens).mean())
    return float(fixed_s), float(per_token_s)
