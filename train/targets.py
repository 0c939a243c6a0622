"""What the teacher says of every training text: asked once, kept in memory-mapped files, read with the batches.

The texts do not change from epoch to epoch and the teacher has no dropout here, so asking it again in every epoch would
give the same answers at the price of a forward pass each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from train.disk import reserve
from train.tokens import TokenFile

if TYPE_CHECKING:
    from train.loader import Batch


class Targets:
    """The teacher's outputs for a split.

    Attributes:
        logits: float32 [texts, labels].
        hidden: hidden states of the chosen layers, float16 [tokens, layers, hidden size], memory-mapped; None where
            they are not needed.
    """

    def __init__(self, path: Path, tokens: TokenFile) -> None:
        self._offsets = tokens.offsets
        self.logits: NDArray[np.float32] = np.load(path / "logits.npy")
        hidden = path / "hidden.npy"
        self.hidden: NDArray[np.float16] | None = np.load(hidden, mmap_mode="r") if hidden.is_file() else None

    def read(
        self, indices: NDArray[np.int64], *, length: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float16] | None]:
        """Return logits [rows, labels] and hidden states [rows, length, layers, hidden size], zero where padded."""
        if self.hidden is None:
            return self.logits[indices], None
        states = np.zeros((len(indices), length, *self.hidden.shape[1:]), dtype=np.float16)
        for row, index in enumerate(indices):
            begin, end = self._offsets[index], self._offsets[index + 1]
            states[row, : end - begin] = self.hidden[begin:end]
        return self.logits[indices], states


def ask_teacher(
    teacher: Any,  # noqa: ANN401 - transformers is untyped
    batches: Iterable[Batch],
    tokens: TokenFile,
    path: Path,
    *,
    hidden_layers: Sequence[int],
    device: torch.device,
    autocast: AbstractContextManager[object],
) -> Targets:
    """Write the teacher's logits, and its hidden states after each of ``hidden_layers``, to the folder ``path``.

    Args:
        teacher: in evaluation mode, on ``device``.
        batches: every text once.
        tokens: the split they are read from.
        path: made if missing.
        hidden_layers: from 0; empty for logits alone.
        device: where the teacher is.
        autocast: arithmetic of the forward pass.
    """
    path.mkdir(parents=True, exist_ok=True)
    logits = np.zeros((len(tokens), teacher.config.num_labels), dtype=np.float32)
    hidden = None
    if hidden_layers:
        shape = (int(tokens.offsets[-1]), len(hidden_layers), teacher.config.hidden_size)
        hidden = np.lib.format.open_memmap(path / "hidden.npy", mode="w+", dtype=np.float16, shape=shape)
        reserve(path / "hidden.npy")
    for batch in batches:
        moved = batch.to(device)
        with torch.inference_mode(), autocast:
            output = teacher(
                input_ids=moved.input_ids, attention_mask=moved.attention_mask, output_hidden_states=bool(hidden_layers)
            )
        logits[batch.indices.numpy()] = output.logits.float().cpu().numpy()
        if hidden is not None:
            # hidden_states[0] is the embedding's output, so layer i's is at i + 1
            stacked = torch.stack([output.hidden_states[layer + 1] for layer in hidden_layers], dim=2)
            states = stacked.to(torch.float16).cpu().numpy()
            for row, index in enumerate(batch.indices.tolist()):
                begin, end = tokens.offsets[index], tokens.offsets[index + 1]
                hidden[begin:end] = states[row, : end - begin]
    if hidden is not None:
        hidden.flush()
    np.save(path / "logits.npy", logits)
    return Targets(path, tokens)
