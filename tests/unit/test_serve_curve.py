"""The batch-time curve and the ladder of batches that it is measured on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest

from serve.curve import HAND_OVER_S, BatchCurve, Sample, ladder, measure, typical

TOKENS = (12, 27, 43, 57, 88, 122, 179, 242, 365, 482)


def samples(fixed_s: float, per_token_s: float, per_square_s: float) -> list[Sample]:
    return [Sample(n, 1, fixed_s + per_token_s * n + per_square_s * n * n) for n in TOKENS]


def test_the_fit_recovers_a_line() -> None:
    curve = BatchCurve(samples(0.002, 1e-5, 0))
    assert curve.fixed_s == pytest.approx(0.002)
    assert curve.per_token_s == pytest.approx(1e-5)
    assert curve.seconds(100, batches=2) == pytest.approx(0.005)


def test_the_fit_recovers_a_parabola() -> None:
    curve = BatchCurve(samples(0.002, 5e-5, 1e-7))
    assert curve.per_square_s == pytest.approx(1e-7)
    assert curve.seconds(400, batches=2) == pytest.approx(2 * (0.002 + 5e-5 * 200 + 1e-7 * 200**2))
    assert curve.tokens_within(curve.seconds(200) * 1.001) == 200
    assert curve.tokens_within(0.001) == 0


def test_the_budget_is_the_batch_of_the_best_rate() -> None:
    curve = BatchCurve(samples(0.002, 5e-5, 1e-7))
    # (a + h + b·n + c·n²)/n is least at n = √((a + h)/c)
    assert curve.best_tokens(within_s=1.0) == pytest.approx(math.sqrt((0.002 + HAND_OVER_S) / 1e-7), abs=1)
    assert curve.best_tokens(within_s=0.008) == pytest.approx(curve.tokens_within(0.008), abs=1)
    assert curve.best_tokens(within_s=0.001) == 12


def test_a_single_measurement_gives_a_proportional_curve() -> None:
    curve = BatchCurve([Sample(tokens=50, texts=1, seconds=0.01)])
    assert curve.seconds(50) == pytest.approx(0.01, rel=0.01)


def test_the_budget_hardly_moves_with_a_noisy_neighbour() -> None:
    """Rounds that are slow as a whole, and single runs that are slow, as a shared machine has them."""
    true_s = np.array([sample.seconds for sample in samples(0.002, 5e-5, 1e-7)])
    budgets = []
    for start in range(20):
        draw = np.random.default_rng(start)
        rounds = true_s * draw.uniform(1, 1.8, (12, 1)) * draw.normal(1, 0.03, (12, len(TOKENS)))
        rounds[draw.random(rounds.shape) < 0.05] *= 2
        found = [Sample(n, 1, seconds) for n, seconds in zip(TOKENS, typical(rounds.tolist()), strict=True)]
        budgets.append(BatchCurve(found).best_tokens(within_s=1.0))
    assert max(budgets) / min(budgets) < 1.25, budgets


def test_the_ladder_holds_the_real_length_mix() -> None:
    batches = ladder(range(1, 101), max_texts=8)
    assert [len(batch) for batch in batches] == [1, 2, 3, 4, 6, 8]
    assert batches[0] == [51]
    assert sum(batches[-1]) / 8 == pytest.approx(50.5, abs=1)


def test_measuring_leaves_a_slow_moment_out() -> None:
    slow_once = iter([0.05])

    def run(batch: Sequence[str]) -> int:
        time.sleep(0.002 * len(batch) + (next(slow_once, 0.0) if len(batch) == 2 else 0.0))
        return sum(len(text.split()) for text in batch)

    found = measure(run, [[5], [5, 6]], words=["one", "two"])
    assert [sample.tokens for sample in found] == [3, 7]
    assert found[1].seconds < 0.02
