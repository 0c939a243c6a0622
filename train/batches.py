"""Which texts go into which batch: texts of like length together, a budget of tokens, another order every epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Texts are sorted by length inside pools of this size: large enough for almost no padding, and a pool's worth of
# lengths is all that has to be sorted at once.
POOL_TEXTS = 16_384


def plan(
    lengths: NDArray[np.int64], *, token_budget: int, max_texts: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Return an epoch's batches as arrays of text indices; every text is in one batch.

    The texts are drawn into pools, sorted by length there (equal lengths in random order), and cut into batches, whose
    order is drawn again. All of it depends on ``seed`` and ``epoch`` alone.

    Args:
        lengths: tokens of each text, none above ``token_budget``.
        token_budget: texts times the longest one's tokens, at most.
        max_texts: of a batch.
        seed: of the run.
        epoch: from 0.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), POOL_TEXTS):
        pool = order[start : start + POOL_TEXTS]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += cut(pool, lengths, token_budget=token_budget, max_texts=max_texts)
    return [batches[index] for index in draw.permutation(len(batches))]


def cut(
    ordered: NDArray[np.int64], lengths: NDArray[np.int64], *, token_budget: int, max_texts: int
) -> list[NDArray[np.int64]]:
    """Cut texts that are in order of length into batches within the budget."""
    batches = []
    begin = 0
    for end in range(1, len(ordered) + 1):
        full = end == len(ordered)
        if not full:
            texts = end + 1 - begin
            full = texts > max_texts or texts * int(lengths[ordered[end]]) > token_budget
        if full:
            batches.append(ordered[begin:end])
            begin = end
    return batches


def in_length_order(lengths: NDArray[np.int64], *, token_budget: int, max_texts: int) -> list[NDArray[np.int64]]:
    """Return batches for evaluation: shortest first, always the same."""
    return cut(np.argsort(lengths, kind="stable"), lengths, token_budget=token_budget, max_texts=max_texts)


def share_of(batch: NDArray[np.int64], rank: int, world_size: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return one process's texts of a global batch, with the weight of each (1, or 0 for a stand-in).

    Every process needs a text, also of a batch that is smaller than the number of processes.
    """
    mine = batch[rank::world_size]
    if len(mine):
        return mine, np.ones(len(mine), dtype=np.float32)
    return batch[:1], np.zeros(1, dtype=np.float32)
