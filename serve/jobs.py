"""One request on its way through the server: its rows, its deadline, its answer and where its time went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serve.errors import ClientLeft, ServeError

Floats = NDArray[np.float32]
NOTHING: Floats = np.empty((0, 0), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Where a batch's time went; its parts count in full for each of its texts.

    Attributes:
        begun_s: on the monotonic clock.
        tokenize_s: text to ids.
        batch_s: building the graph's inputs.
        compute_s: ONNX Runtime.
        timing: the three of them as Server-Timing has them, written once for all of its texts.
    """

    begun_s: float
    tokenize_s: float
    batch_s: float
    compute_s: float
    timing: bytes


class Job:
    """A request that was admitted. Its fields belong to the event loop; the lane only reads and hands back rows.

    Args:
        texts: one string a row, or None where ids were sent.
        ids: token ids a row, or None until the lane has tokenized.
        weights: tokens of each row: exact for ids, estimated for texts.
        num_labels: width of the answer.
        deadline_s: on the monotonic clock.
        urgent: of the upper of two priority classes.
        on_over: called once, on the event loop: the last row is done, or there is an error.

    Attributes:
        logits, probabilities: [rows, num_labels], once the last row is done.
        is_over: nobody waits for it any more.
        error: why there is no result.
        batch: the times of the last batch that one of its rows was in; None until then.
        serialise_s: seconds from its rows to the answer's body.
    """

    __slots__ = (
        "_on_over",
        "arrived_s",
        "batch",
        "deadline_s",
        "error",
        "ids",
        "is_over",
        "labels",
        "logits",
        "probabilities",
        "remaining",
        "serialise_s",
        "texts",
        "urgent",
        "weights",
    )

    def __init__(
        self,
        *,
        texts: Sequence[str] | None,
        ids: Sequence[Sequence[int]] | None,
        weights: Sequence[int],
        num_labels: int,
        arrived_s: float,
        deadline_s: float,
        urgent: bool,
        on_over: Callable[[], None],
    ) -> None:
        self.texts = texts
        self.ids = ids
        self.weights = weights
        self.arrived_s = arrived_s
        self.deadline_s = deadline_s
        self.urgent = urgent
        self._on_over = on_over
        self.is_over = False
        self.error: ServeError | ClientLeft | None = None
        self.remaining = len(weights)
        self.labels: list[int] = [0] * len(weights)
        self.logits = self.probabilities = NOTHING
        if len(weights) > 1:
            self.logits = np.empty((len(weights), num_labels), dtype=np.float32)
            self.probabilities = np.empty_like(self.logits)
        self.batch: BatchTimes | None = None
        self.serialise_s = 0.0

    @property
    def queue_s(self) -> float:
        """Seconds from its arrival until its last row was taken into a batch; 0 before."""
        return self.batch.begun_s - self.arrived_s if self.batch is not None else 0.0

    def fill(self, row: int, logits: Floats, probabilities: Floats, label: int) -> bool:
        """Put one row's result in place, its arrays [1, num_labels]; returns whether that ended the job."""
        self.labels[row] = label
        if len(self.labels) == 1:  # nearly every job: the batch's own row serves, no copy
            self.logits, self.probabilities = logits, probabilities
        else:
            self.logits[row], self.probabilities[row] = logits, probabilities
        self.remaining -= 1
        if self.remaining or self.is_over:
            return False
        self._end()
        return True

    def fail(self, error: ServeError | ClientLeft) -> None:
        """End with an error, unless it is over: rows that still wait are dropped before they reach a batch."""
        if not self.is_over:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.is_over = True
        on_over, self._on_over = self._on_over, _nothing  # whoever waits holds the job: no circle for the collector
        on_over()


class Row:
    """One text of a job: the unit that batches are made of."""

    __slots__ = ("index", "job", "weight")

    def __init__(self, job: Job, index: int, weight: int) -> None:
        self.job = job
        self.index = index
        self.weight = weight


def _nothing() -> None:
    """Stand where nobody waits any more."""
