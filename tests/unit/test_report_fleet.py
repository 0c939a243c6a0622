"""The fleet simulation against queueing theory, and the batch model against batches that are known."""

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from report.fleet.batches import BatchModel, fit
from report.fleet.simulation import poisson_arrivals, simulate
from report.fleet.trace import Batch, Trace, read_trace
from testbed.errors import UserError


def batching(*, fixed_s, max_texts=1, max_tokens=1, outside_s=0.0, extras_s=(0.0,), **changes):
    """A server whose batches take the same time whatever they hold, plus what disturbs them."""
    fields = {
        "fixed_s": fixed_s, "per_token_s": 0.0, "per_text_s": 0.0, "per_arrival_s": 0.0, "per_answer_s": 0.0,
        "gaps_s": np.zeros(1), "wakes_s": np.zeros(1), "in_s": np.zeros(1), "out_fixed_s": outside_s,
        "out_per_text_s": 0.0, "outs_s": np.zeros(1), "extras_s": (np.asarray(extras_s),),
        "extras_at_s": (np.zeros(len(extras_s)),),
        "max_texts": max_texts, "max_tokens": max_tokens,
        "tokens": np.ones(8, dtype=np.int64), "num_batches": 100,
    }  # fmt: skip
    return BatchModel(**{**fields, **changes})


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


def test_requests_that_come_in_and_answers_that_go_out_take_time_from_a_batch():
    model = batching(fixed_s=1.0, max_texts=3, max_tokens=10, per_arrival_s=0.1, per_answer_s=0.01)
    outcome = simulate(model, np.asarray([0.0, 0.5, 1.05, 3.0]), np.asarray([1, 1, 1, 1]), deadline_s=math.inf)
    # The second comes while the first batch runs and makes it 1.1 long, so the third comes before its end, too: 1.2.
    # Then both at once, with the first one's answer on its way out; the last one finds an idle lane.
    assert outcome.latency_s == pytest.approx([1.2, 1.71, 1.16, 1.0])


def test_ways_in_delay_the_queue_and_ways_out_grow_with_the_batch():
    model = batching(fixed_s=1.0, max_texts=3, max_tokens=10, in_s=np.full(1, 0.2), out_per_text_s=0.05)
    outcome = simulate(model, np.asarray([0.0, 0.1, 0.9]), np.asarray([1, 1, 1]), deadline_s=math.inf)
    # Waiting from 0.2, 0.3 and 1.1 on: one alone until 1.2, the other two until 2.2.
    assert outcome.latency_s == pytest.approx([1.25, 2.2, 1.4])


def test_a_disturbance_belongs_to_its_size_of_batch():
    model = batching(fixed_s=1.0, max_texts=2, max_tokens=10, extras_s=(0.0,))
    model = dataclasses.replace(model, extras_s=(np.zeros(1), np.full(1, 0.5)))
    outcome = simulate(model, np.asarray([0.0, 0.1, 0.2]), np.asarray([1, 1, 1]), deadline_s=math.inf)
    assert outcome.latency_s == pytest.approx([1.0, 2.4, 2.3])


def test_an_aligned_disturbance_comes_when_it_came():
    model = batching(fixed_s=1.0, extras_s=(0.0, 0.5, 0.0))
    model = dataclasses.replace(model, extras_at_s=(np.asarray([0.0, 10.0, 20.0]),))
    arrivals, tokens = np.asarray([9.9, 15.0]), np.asarray([1, 1])
    outcome = simulate(model, arrivals, tokens, deadline_s=math.inf, aligned=True)
    assert outcome.latency_s == pytest.approx([1.5, 1.0])


def test_a_batch_is_cut_for_its_oldest_query_and_a_hopeless_one_is_dropped():
    model = batching(fixed_s=0.1, per_token_s=0.1, per_arrival_s=0.1, max_texts=9, max_tokens=9)
    arrivals, tokens = np.asarray([0.0, 0.01, 0.02, 0.03]), np.asarray([9, 3, 3, 3])
    outcome = simulate(model, arrivals, tokens, deadline_s=1.98)
    # All are admitted, but the first batch takes until 1.3. Then the second query has 0.69 left: a batch of five
    # tokens, so it goes alone, until 1.7; and then the others, which need 0.4, have 0.3 left.
    assert outcome.latency_s == pytest.approx([1.3, 1.69, math.inf, math.inf])
    assert outcome.num_batches == 2


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
            total_ms = 20 + seconds * 1e3 + 0.1
            timing = f"queue;dur=20, tokenize;dur=0, compute;dur={seconds * 1e3:.6f}, total;dur={total_ms:.6f}"
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
    # Of half a millisecond outside, the server saw 0.1 ms on the way out; the rest is one half each way.
    assert np.median(model.in_s) == pytest.approx(0.0002, rel=0.01)
    assert model.out_fixed_s + np.median(model.outs_s) == pytest.approx(0.0003, rel=0.01)
    assert model.gaps_s == pytest.approx(0.0002, rel=0.01)


def test_the_fit_tells_a_batchs_own_work_from_what_the_event_loop_takes():
    draw = np.random.default_rng(5)
    sent_s = np.sort(draw.uniform(0, 6, 3000))
    batches, begin_s = [], 0.0
    while begin_s < 5.9:
        tokens = int(draw.integers(5, 200))
        own_s = 0.001 + 4e-5 * tokens
        came = np.searchsorted(sent_s, begin_s + own_s) - np.searchsorted(sent_s, begin_s)
        seconds = own_s + 1.5e-4 * came
        batches.append(Batch(begin_s, seconds, tokens, 1 + tokens // 14, begin_s - 0.001, 9, 0.0005))
        begin_s += seconds + 0.0005 + float(draw.exponential(0.001))
    trace = Trace(
        sent_s, np.full(3000, 9), np.full(3000, 0.01), tuple(batches), *np.full((2, 3000), 1e-4), np.ones(3000)
    )
    model = fit([trace])
    assert model.per_arrival_s == pytest.approx(1.5e-4, rel=0.25)
    assert model.per_token_s + model.per_text_s / 14 == pytest.approx(4e-5, rel=0.1)


def test_too_few_batches_and_missing_rows_are_refused(tmp_path):
    known_rows(tmp_path / "rows.parquet", batches=[[5], [6]], fixed_s=0.002, per_token_s=5e-5)
    with pytest.raises(UserError, match="only 2 batches"):
        fit([read_trace(tmp_path / "rows.parquet", np.arange(64))])
    with pytest.raises(UserError, match="raw rows are missing"):
        read_trace(tmp_path / "none.parquet", np.arange(64))
