"""One request on its way through the server: its rows, its deadline, its answer and where its time went."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serve.errors import ClientLeft, ServeError

Floats = NDArray[np.float32]
NOTHING: Floats = np.empty((0, 0), dtype=np.float32)


@dataclass(slots=True)
class Spent:
    """Seconds of a job by part; the parts of a batch count in full for each of its texts.

    Attributes:
        queue_s: from arrival until its last row was taken into a batch.
        tokenize_s: text to ids, of the whole batch.
        batch_s: building the graph's inputs.
        compute_s: ONNX Runtime.
        serialise_s: rows to the answer's body.
    """

    queue_s: float = 0.0
    tokenize_s: float = 0.0
    batch_s: float = 0.0
    compute_s: float = 0.0
    serialise_s: float = 0.0


class Job:
    """A request that was admitted. Its fields belong to the event loop; the lane only reads and hands back rows.

    Args:
        texts: one string a row, or None where ids were sent.
        ids: token ids a row, or None until the lane has tokenized.
        weights: tokens of each row: exact for ids, estimated for texts.
        num_labels: width of the answer.
        deadline_s: on the monotonic clock.
        urgent: of the upper of two priority classes.
        future: resolved when the last row is done.

    Attributes:
        logits, probabilities: [rows, num_labels], once the future is resolved.
        spent: where its time went; None until a row has been in a batch.
    """

    __slots__ = (
        "arrived_s",
        "deadline_s",
        "departed",
        "future",
        "ids",
        "labels",
        "logits",
        "probabilities",
        "remaining",
        "spent",
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
        future: asyncio.Future[None],
    ) -> None:
        self.texts = texts
        self.ids = ids
        self.weights = weights
        self.arrived_s = arrived_s
        self.deadline_s = deadline_s
        self.urgent = urgent
        self.future = future
        self.departed = False
        self.remaining = len(weights)
        self.labels: list[int] = [0] * len(weights)
        self.logits = self.probabilities = NOTHING
        if len(weights) > 1:
            self.logits = np.empty((len(weights), num_labels), dtype=np.float32)
            self.probabilities = np.empty_like(self.logits)
        self.spent: Spent | None = None

    def fill(self, row: int, logits: Floats, probabilities: Floats, label: int) -> None:
        """Put one row's result in place, its arrays [1, num_labels]; resolves the future with the last one."""
        self.labels[row] = label
        if len(self.labels) == 1:  # nearly every job: the batch's own row serves, no copy
            self.logits, self.probabilities = logits, probabilities
        else:
            self.logits[row], self.probabilities[row] = logits, probabilities
        self.remaining -= 1
        if not self.remaining and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: ServeError | ClientLeft) -> None:
        """Answer with an error, unless an answer is there already."""
        if not self.future.done():
            self.future.set_exception(error)

    def leave(self) -> None:
        """The client has gone: rows that still wait are dropped before they reach a batch."""
        self.departed = True
        self.fail(ClientLeft())


class Row:
    """One text of a job: the unit that batches are made of."""

    __slots__ = ("index", "job", "weight")

    def __init__(self, job: Job, index: int, weight: int) -> None:
        self.job = job
        self.index = index
        self.weight = weight
