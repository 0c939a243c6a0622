"""The batch-time curve and the ladder of batches that it is measured on."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from serve.curve import BatchCurve, Sample, ladder, measure


def test_the_fit_recovers_a_line() -> None:
    curve = BatchCurve([Sample(tokens=n, texts=1, seconds=0.002 + 1e-5 * n) for n in (8, 16, 64, 256)])
    assert curve.fixed_s == pytest.approx(0.002)
    assert curve.per_token_s == pytest.approx(1e-5)
    assert curve.seconds(100, batches=2) == pytest.approx(0.005)


def test_the_budget_is_the_largest_batch_near_the_best_rate() -> None:
    # tokens a second: 1000, 2000, 3000, 3050, 2500; the last one is not near the best
    samples = [
        Sample(tokens=n, texts=1, seconds=n / rate)
        for n, rate in ((10, 1000), (20, 2000), (40, 3000), (80, 3050), (160, 2500))
    ]
    curve = BatchCurve(samples)
    assert curve.best_tokens(within_s=1.0) == 80
    assert curve.best_tokens(within_s=0.011) == 20
    assert curve.best_tokens(within_s=0.001) == 10


def test_a_single_measurement_gives_a_proportional_curve() -> None:
    curve = BatchCurve([Sample(tokens=50, texts=1, seconds=0.01)])
    assert curve.seconds(50) == pytest.approx(0.01, rel=0.01)


def test_the_ladder_holds_the_real_length_mix() -> None:
    batches = ladder(range(1, 101), max_texts=8)
    assert [len(batch) for batch in batches] == [1, 2, 3, 4, 6, 8]
    assert batches[0] == [51]
    assert sum(batches[-1]) / 8 == pytest.approx(50.5, abs=1)


def test_measuring_takes_the_least_time_of_each_size() -> None:
    slow_once = iter([0.05])

    def run(batch: Sequence[str]) -> int:
        time.sleep(0.002 * len(batch) + (next(slow_once, 0.0) if len(batch) == 2 else 0.0))
        return sum(len(text.split()) for text in batch)

    samples = measure(run, [[5], [5, 6]], words=["one", "two"])
    assert [sample.tokens for sample in samples] == [3, 7]
    assert samples[1].seconds < 0.02
