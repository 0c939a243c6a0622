"""A training split as a feed of batches, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from train.batches import plan
from train.config import TrainConfig
from train.loader import Batch, BatchReader, load
from train.processes import Processes
from train.targets import Targets
from train.tokens import TokenFile


@dataclass
class Feed:
    """Gives each epoch's batches, the same ones for the same seed.

    Attributes:
        tokens: the training split.
        config: budget, seed and workers.
        epochs: of the whole training.
        processes: which part of each batch is this process's.
        pad_token_id: fills up shorter texts.
        label_weights: of a text by its label, or None.
        targets: what the teacher said, or None.
        slow_storage_s: a fault to inject into every read.
    """

    tokens: TokenFile
    config: TrainConfig
    epochs: int
    processes: Processes
    pad_token_id: int
    label_weights: NDArray[np.float32] | None = None
    targets: Targets | None = None
    slow_storage_s: float = 0.0
    _plan: tuple[int, list[NDArray[np.int64]]] | None = field(default=None, init=False)

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the text indices of each global batch of an epoch."""
        if self._plan is None or self._plan[0] != epoch:
            batches = plan(
                self.tokens.lengths,
                token_budget=self.config.token_budget,
                max_texts=self.config.max_texts,
                seed=self.config.seed,
                epoch=epoch,
            )
            self._plan = (epoch, batches)
        return self._plan[1]

    def total_steps(self) -> int:
        """Return the number of batches of all epochs."""
        return sum(len(self.plan(epoch)) for epoch in range(self.epochs))

    def largest_batch(self) -> tuple[int, int]:
        """Return rows and length of the batch of this process with the most tokens, padding counted."""
        shapes = [(len(batch), int(self.tokens.lengths[batch].max())) for batch in self.plan(0)]
        rows, length = max(shapes, key=lambda shape: shape[0] * shape[1])
        return -(-rows // self.processes.world_size), length

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield this process's part of each batch of an epoch, from number ``start``."""
        reader = BatchReader(
            self.tokens,
            self.plan(epoch),
            pad_token_id=self.pad_token_id,
            rank=self.processes.rank,
            world_size=self.processes.world_size,
            label_weights=self.label_weights,
            targets=self.targets,
            slow_storage_s=self.slow_storage_s,
        )
        pin = self.processes.device.type == "cuda"
        return load(reader, start=start, workers=self.config.data_workers, pin=pin)


def balanced_weights(labels: NDArray[np.int64], num_labels: int) -> NDArray[np.float32]:
    """Return weights inverse to each label's frequency, 1 in the mean over the texts."""
    counts = np.bincount(labels, minlength=num_labels)
    return (len(labels) / (num_labels * np.maximum(counts, 1))).astype(np.float32)
