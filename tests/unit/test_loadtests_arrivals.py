"""Arrival processes: exact counts, the law of their gaps, shapes, traces, and the same times for the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from loadtests.arrivals import draw
from loadtests.plan import Arrivals
from loadtests.rows import Row, write_rows
from testbed.errors import UserError


def drawn(process: str, rate_qps: float = 200.0, duration_s: float = 50.0, seed: int = 3, **more: object) -> np.ndarray:
    arrivals = Arrivals.model_validate({"process": process, **more})
    return draw(arrivals, rate_qps=rate_qps, duration_s=duration_s, seed=seed)


@pytest.mark.parametrize("process", ["poisson", "uniform", "gamma"])
def test_offered_load_is_exact_and_times_ascend_in_the_window(process: str) -> None:
    times = drawn(process)
    assert len(times) == 200 * 50
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] <= 50


def test_poisson_gaps_are_exponential_and_uniform_ones_are_equal() -> None:
    gaps = np.diff(drawn("poisson"))
    assert stats.kstest(gaps, "expon", args=(0, gaps.mean())).pvalue > 0.01
    assert np.diff(drawn("uniform")) == pytest.approx(1 / 200)


@pytest.mark.parametrize("cv", [0.5, 2.0, 4.0])
def test_gamma_gaps_have_the_coefficient_of_variation_that_was_asked(cv: float) -> None:
    gaps = np.diff(drawn("gamma", cv=cv))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


def test_same_seed_same_times_other_seed_other_times() -> None:
    assert (drawn("poisson", seed=7) == drawn("poisson", seed=7)).all()
    assert (drawn("poisson", seed=7) != drawn("poisson", seed=8)).any()


def test_steps_offer_multiples_of_the_rate_one_after_the_other() -> None:
    times = drawn("steps", steps=(0.5, 2.0, 0.5), duration_s=60)
    counts = np.histogram(times, bins=[0, 20, 40, 60])[0]
    assert len(times) == 200 * 60
    assert counts / 20 == pytest.approx([100, 400, 100], rel=0.1)


def test_a_curve_keeps_its_shape_in_any_time_scale(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    hours = np.arange(25)
    rates = 2 + np.sin(hours / 24 * 2 * np.pi)
    rows = "\n".join(f"{hour * 3600},{rate}" for hour, rate in zip(hours, rates, strict=True))
    path.write_text("second,rate\n" + rows)
    times = drawn("curve", file=path, duration_s=24, rate_qps=500)
    counts = np.histogram(times, bins=24, range=(0, 24))[0]
    expected = (rates[:-1] + rates[1:]) / 2 / 2 * 500
    assert len(times) == 500 * 24
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 0.01


def test_a_trace_is_replayed_from_a_csv_and_from_the_raw_rows_of_a_run(tmp_path: Path) -> None:
    csv_file, rows_file = tmp_path / "trace.csv", tmp_path / "run.parquet"
    csv_file.write_text("second\n10.5\n10.0\n12.25\n")
    write_rows([Row(query=i, text=0, scheduled_s=at) for i, at in enumerate([0.0, 0.5, 2.25])], rows_file)
    for path in (csv_file, rows_file):
        times = draw(Arrivals(process="trace", file=path), rate_qps=None, duration_s=1, seed=1)
        assert times.tolist() == [0.0, 0.5, 2.25]


@pytest.mark.parametrize("content", ["second,rate\n1,2\n", "time,rate\n1,2\n2,2\n", "second,rate\n2,1\n1,1\n"])
def test_a_file_that_is_no_curve_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=r"curve\.csv.*help:"):
        drawn("curve", file=path)


def test_arrivals_without_their_file_or_steps_are_refused() -> None:
    for process in ("curve", "trace", "steps"):
        with pytest.raises(ValueError, match="help: set arrivals"):
            Arrivals.model_validate({"process": process})
