"""A split tokenised once, into memory-mapped files that every epoch and every worker process reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.dataset import Split
from testbed.tokenization import TextTokenizer


class TokenFile:
    """The tokens and labels of a split.

    Attributes:
        ids: all texts' token ids one after the other, int32 [tokens], memory-mapped.
        offsets: text i is ``ids[offsets[i]:offsets[i + 1]]``, int64 [texts + 1].
        labels: int64 [texts].
        lengths: tokens of each text, int64 [texts].
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: NDArray[np.int32] = np.load(path.with_suffix(".ids.npy"), mmap_mode="r")
        self.offsets: NDArray[np.int64] = np.load(path.with_suffix(".offsets.npy"))
        self.labels: NDArray[np.int64] = np.load(path.with_suffix(".labels.npy"))
        self.lengths: NDArray[np.int64] = np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.labels)

    def text(self, index: int) -> NDArray[np.int32]:
        """Return the ids of one text."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]


def encode(split: Split, tokenizer: TextTokenizer) -> list[list[int]]:
    """Return the ids of each text of a split, special tokens included, cut at the tokenizer's maximum length."""
    return tokenizer.encode_batch(split.texts)


def write_tokens(path: Path, encoded: list[list[int]], labels: list[int]) -> TokenFile:
    """Write the files of one split beside ``path`` and return it opened."""
    lengths = [len(ids) for ids in encoded]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path.with_suffix(".ids.npy"), np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded]))
    np.save(path.with_suffix(".offsets.npy"), np.cumsum([0, *lengths], dtype=np.int64))
    np.save(path.with_suffix(".labels.npy"), np.asarray(labels, dtype=np.int64))
    return TokenFile(path)
