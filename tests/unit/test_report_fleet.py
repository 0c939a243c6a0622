"""The fleet simulation against queueing theory, and the batch model against batches that are known."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from report.fleet.batches import BatchModel, fit, read_trace
from report.fleet.simulation import poisson_arrivals, simulate
from testbed.errors import UserError


def batching(*, fixed_s, max_texts=1, max_tokens=1, outside_s=0.0, extras_s=(0.0,)):
    """A server whose batches take the same time whatever they hold, plus what disturbs them."""
    return BatchModel(
        fixed_s=fixed_s, per_token_s=0.0, per_text_s=0.0, gap_s=0.0, wakes_s=np.zeros(1),
        outside_s=np.full(1, outside_s), extras_s=np.asarray(extras_s), max_texts=max_texts, max_tokens=max_tokens,
        tokens=np.ones(8, dtype=np.int64), num_batches=100,
    )  # fmt: skip


def run(model, rate_qps, num, **more):
    arrivals = poisson_arrivals(rate_qps, num, np.random.default_rng(1))
    return simulate(model, arrivals, np.ones(num, dtype=np.int64), deadline_s=math.inf, **more)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_wait_is_pollaczek_and_khinchines_for_fixed_service(load):
    outcome = run(batching(fixed_s=0.01), load / 0.01, 200_000)
    expected_s = 0.01 + load * 0.01 / (2 * (1 - load))
    assert outcome.latency_s.mean() == pytest.approx(expected_s, rel=0.03)
    assert outcome.utilisation == pytest.approx(load, rel=0.02)


def test_exponential_service_gives_the_m_m_1_tail():
    # A batch takes at least a fifth of its fitted time, so the shortest tenth of these services is cut a little.
    extras_s = np.random.default_rng(2).exponential(0.01, 60_000) - 0.01
    outcome = run(batching(fixed_s=0.01, extras_s=extras_s), 60, 200_000)
    # The time in an M/M/1 system is exponential with rate mu - lambda.
    assert outcome.quantile_s(0.99) == pytest.approx(math.log(100) / (100 - 60), rel=0.08)


def test_two_choices_beat_one_and_replicas_share_the_load():
    random = run(batching(fixed_s=0.01), 8 * 80, 100_000, num_replicas=8, routing="random")
    chosen = run(batching(fixed_s=0.01), 8 * 80, 100_000, num_replicas=8, routing="two choices")
    assert chosen.quantile_s(0.99) < 0.7 * random.quantile_s(0.99)
    assert chosen.utilisation == pytest.approx(0.8, rel=0.02)


def test_a_batch_takes_what_waits_and_no_more():
    model = batching(fixed_s=1.0, max_texts=3, max_tokens=10, outside_s=0.25)
    outcome = simulate(model, np.asarray([0.0, 0.1, 0.2, 0.3, 0.4]), np.asarray([1, 4, 4, 4, 4]), deadline_s=math.inf)
    # One alone until 1, two that fit ten tokens until 2, the last two until 3.
    assert outcome.latency_s == pytest.approx([1.25, 2.15, 2.05, 2.95, 2.85])
    assert outcome.num_batches == 3


def test_overload_refuses_and_keeps_the_deadline():
    arrivals = poisson_arrivals(300, 20_000, np.random.default_rng(3))
    outcome = simulate(batching(fixed_s=0.01), arrivals, np.ones(20_000, dtype=np.int64), deadline_s=0.2)
    answered = outcome.latency_s[np.isfinite(outcome.latency_s)]
    assert outcome.refused_share == pytest.approx(2 / 3, abs=0.02)
    assert answered.max() <= 0.2 + 1e-9
    assert outcome.quantile_s(0.99) == math.inf


def known_rows(path, *, batches, fixed_s, per_token_s):
    """Write the rows of a server that ran these batches (token counts) one after the other."""
    rows, begin_s = [], 0.0
    for batch in batches:
        seconds = fixed_s + per_token_s * sum(batch)
        for tokens in batch:
            timing = f"queue;dur=20.000, tokenize;dur=0, batch;dur=0, compute;dur={seconds * 1e3:.6f}"
            sent_s = begin_s - 0.020
            rows.append((tokens, sent_s, sent_s, begin_s + seconds + 0.0005, None, timing))
        begin_s += seconds + 0.0002
    names = ["text", "scheduled_s", "sent_s", "done_s", "error", "server_timing"]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    columns["error"] = pa.array(columns["error"], type=pa.string())
    pq.write_table(pa.table(columns), path)


def test_the_fit_finds_the_model_that_made_the_rows(tmp_path):
    draw = np.random.default_rng(4)
    batches = [draw.integers(5, 30, draw.integers(1, 9)).tolist() for _ in range(200)]
    known_rows(tmp_path / "rows.parquet", batches=batches, fixed_s=0.002, per_token_s=5e-5)
    model = fit([read_trace(tmp_path / "rows.parquet", np.arange(64))])
    assert model.num_batches == 200
    assert model.fixed_s == pytest.approx(0.002, rel=0.01)
    assert model.per_token_s == pytest.approx(5e-5, rel=0.02)
    assert model.max_texts == max(map(len, batches))
    assert np.median(model.outside_s) == pytest.approx(0.0005, rel=0.01)
    assert model.gap_s == pytest.approx(0.0002, rel=0.01)


def test_too_few_batches_and_missing_rows_are_refused(tmp_path):
    known_rows(tmp_path / "rows.parquet", batches=[[5], [6]], fixed_s=0.002, per_token_s=5e-5)
    with pytest.raises(UserError, match="only 2 batches"):
        fit([read_trace(tmp_path / "rows.parquet", np.arange(64))])
    with pytest.raises(UserError, match="raw rows are missing"):
        read_trace(tmp_path / "none.parquet", np.arange(64))
