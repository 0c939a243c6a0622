"""Batches hold every text once, keep their budget, and are the same for the same seed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from train.batches import in_length_order, plan, share_of

LENGTHS = st.lists(st.integers(2, 64), min_size=1, max_size=300).map(lambda found: np.array(found, dtype=np.int64))


@given(LENGTHS, st.integers(64, 600), st.integers(1, 40), st.integers(0, 5), st.integers(0, 5))
def test_every_text_is_in_one_batch_within_the_budget(
    lengths: np.ndarray, token_budget: int, max_texts: int, seed: int, epoch: int
) -> None:
    batches = plan(lengths, token_budget=token_budget, max_texts=max_texts, seed=seed, epoch=epoch)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= max_texts
        assert len(batch) * lengths[batch].max() <= token_budget


@given(LENGTHS, st.integers(0, 5))
def test_a_plan_depends_on_seed_and_epoch_alone(lengths: np.ndarray, seed: int) -> None:
    once, again = (plan(lengths, token_budget=128, max_texts=8, seed=seed, epoch=3) for _ in range(2))
    assert all((first == second).all() for first, second in zip(once, again, strict=True))


def test_another_epoch_mixes_other_texts_in_another_order() -> None:
    lengths = np.random.default_rng(0).integers(4, 12, size=400)
    first, second = (plan(lengths, token_budget=128, max_texts=16, seed=0, epoch=epoch) for epoch in (0, 1))
    assert {frozenset(batch) for batch in first}.isdisjoint({frozenset(batch) for batch in second})
    means = [lengths[batch].mean() for batch in first]
    assert means != sorted(means)


@given(LENGTHS)
def test_evaluation_goes_from_short_to_long(lengths: np.ndarray) -> None:
    batches = in_length_order(lengths, token_budget=256, max_texts=16)
    ordered = lengths[np.concatenate(batches)]
    assert (np.diff(ordered) >= 0).all()


@given(st.integers(1, 40), st.integers(1, 6))
def test_processes_share_a_batch_without_loss_or_double_count(num_texts: int, world_size: int) -> None:
    batch = np.arange(100, 100 + num_texts)
    shares = [share_of(batch, rank, world_size) for rank in range(world_size)]
    counted = [index for indices, weights in shares for index, weight in zip(indices, weights, strict=True) if weight]
    assert sorted(counted) == sorted(batch)
    assert all(len(indices) >= 1 for indices, _ in shares)
