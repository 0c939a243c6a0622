"""Token ids of several texts to the arrays that a graph takes: padded (one row a text) or packed (one row in all)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Feed = dict[str, Ints]


def padded(ids: Sequence[Sequence[int]], *, inputs: Sequence[str], pad_token_id: int) -> Feed:
    """Return ``input_ids``, ``attention_mask`` and, where named, ``token_type_ids``: [batch, longest], int64.

    Args:
        ids: at least one text, each of at least one token.
        inputs: the graph's input names.
        pad_token_id: fills the rows that are shorter than the longest.
    """
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    mask = np.arange(int(lengths.max())) < lengths[:, None]
    input_ids = np.full(mask.shape, pad_token_id, dtype=np.int64)
    input_ids[mask] = _flat(ids)
    feed = {"input_ids": input_ids, "attention_mask": mask.astype(np.int64)}
    if "token_type_ids" in inputs:
        feed["token_type_ids"] = np.zeros_like(input_ids)
    return feed


def packed(ids: Sequence[Sequence[int]]) -> Feed:
    """Return ``input_ids``, ``segment_ids``, ``position_ids`` [tokens] and ``first_token`` [texts], int64.

    The layout is described in docs/architecture.md: no padding, positions restart with each text.
    """
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    first_token = np.cumsum(lengths) - lengths
    input_ids = _flat(ids)
    return {
        "input_ids": input_ids,
        "segment_ids": np.repeat(np.arange(len(ids)), lengths),
        "position_ids": np.arange(len(input_ids)) - np.repeat(first_token, lengths),
        "first_token": first_token,
    }


def _flat(ids: Sequence[Sequence[int]]) -> Ints:
    return np.array([token for row in ids for token in row], dtype=np.int64)
