"""Batches as tensors: read from the memory-mapped files, padded to their longest text, optionally ahead of time."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from train.batches import share_of
from train.targets import Targets
from train.tokens import TokenFile

PREFETCH_BATCHES = 4


@dataclass(frozen=True)
class Batch:
    """One process's part of a batch; ``rows`` texts padded to ``length`` tokens.

    Attributes:
        indices: of the texts in their split, [rows].
        input_ids: int64 [rows, length].
        attention_mask: int64 [rows, length].
        labels: int64 [rows].
        weights: of each text in the loss, float32 [rows]; they add up, over all processes, to the global batch's texts.
        num_texts: of the global batch.
        teacher_logits: float32 [rows, labels], or None.
        teacher_hidden: float16 [rows, length, layers, hidden size], or None.
    """

    indices: Tensor
    input_ids: Tensor
    attention_mask: Tensor
    labels: Tensor
    weights: Tensor
    num_texts: int
    teacher_logits: Tensor | None = None
    teacher_hidden: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device, copied asynchronously where its memory is pinned."""
        if device.type == "cpu":
            return self
        return self._with({name: tensor.to(device, non_blocking=True) for name, tensor in self._tensors()})

    def pin_memory(self) -> Batch:
        """Return the batch in pinned memory; DataLoader calls this."""
        return self._with({name: tensor.pin_memory() for name, tensor in self._tensors()})

    @property
    def num_tokens(self) -> int:
        """Real tokens of this process's part."""
        return int(self.attention_mask.sum())

    def _with(self, tensors: dict[str, Any]) -> Batch:
        return replace(self, **tensors)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                yield field.name, value


class BatchReader(Dataset[Batch]):
    """Batches by their number in a plan.

    Args:
        tokens: the split.
        plan: text indices of each global batch.
        pad_token_id: fills up shorter texts.
        rank: this process's number.
        world_size: number of processes.
        label_weights: weight of a text by its label, float32 [labels]; None for equal ones.
        targets: what the teacher said, for a student.
        slow_storage_s: a fault to inject: seconds that every read takes longer.
    """

    def __init__(
        self,
        tokens: TokenFile,
        plan: Sequence[NDArray[np.int64]],
        *,
        pad_token_id: int,
        rank: int = 0,
        world_size: int = 1,
        label_weights: NDArray[np.float32] | None = None,
        targets: Targets | None = None,
        slow_storage_s: float = 0.0,
    ) -> None:
        self._tokens = tokens
        self._plan = plan
        self._pad_token_id = pad_token_id
        self._rank, self._world_size = rank, world_size
        self._label_weights = label_weights
        self._targets = targets
        self._slow_storage_s = slow_storage_s

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, number: int) -> Batch:
        if self._slow_storage_s:
            time.sleep(self._slow_storage_s)
        indices, weights = share_of(self._plan[number], self._rank, self._world_size)
        texts = [self._tokens.text(index) for index in indices]
        length = max(len(ids) for ids in texts)
        input_ids = np.full((len(texts), length), self._pad_token_id, dtype=np.int64)
        attention_mask = np.zeros((len(texts), length), dtype=np.int64)
        for row, ids in enumerate(texts):
            input_ids[row, : len(ids)] = ids
            attention_mask[row, : len(ids)] = 1
        labels = self._tokens.labels[indices]
        if self._label_weights is not None:
            weights = weights * self._label_weights[labels]
        logits, hidden = self._targets.read(indices, length=length) if self._targets else (None, None)
        return Batch(
            indices=torch.from_numpy(indices),
            input_ids=torch.from_numpy(input_ids),
            attention_mask=torch.from_numpy(attention_mask),
            labels=torch.from_numpy(labels),
            weights=torch.from_numpy(weights),
            num_texts=len(self._plan[number]),
            teacher_logits=None if logits is None else torch.from_numpy(logits),
            teacher_hidden=None if hidden is None else torch.from_numpy(hidden),
        )


def _leave_stopping_to_the_training(_worker: int) -> None:
    """Ignore SIGTERM and Ctrl-C, which may reach a whole group: the training needs its readers until it has saved."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def load(reader: BatchReader, *, start: int = 0, workers: int = 0, pin: bool = False) -> Iterator[Batch]:
    """Yield the reader's batches in order, from number ``start``.

    Args:
        reader: what is read.
        start: number of the first batch.
        workers: processes that read ahead; 0 reads in this one.
        pin: whether batches go into pinned memory, for asynchronous copies to a GPU.
    """
    loader = DataLoader(
        reader,
        batch_size=None,
        sampler=range(start, len(reader)),
        num_workers=workers,
        prefetch_factor=PREFETCH_BATCHES if workers else None,
        pin_memory=pin,
        worker_init_fn=_leave_stopping_to_the_training,
        # its own generator: DataLoader draws from it, and the global one must not depend on where an epoch resumes
        generator=torch.Generator().manual_seed(0),
    )
    yield from loader
