"""Laws that hold for any arrivals, rows and servers."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.arrivals import draw
from loadtests.capacity import search
from loadtests.plan import Arrivals
from loadtests.protocols import wire_form
from loadtests.queueing import lindley_s, md1_sojourn_s, md1_waiting_cdf, mm1_sojourn_s
from testbed.records import Probe

RATES = st.floats(min_value=0.5, max_value=2000)
SECONDS = st.floats(min_value=0.1, max_value=20)
SEEDS = st.integers(min_value=0, max_value=2**31)


@settings(max_examples=60, deadline=None)
@given(RATES, SECONDS, SEEDS, st.sampled_from(["poisson", "uniform", "gamma"]), st.floats(min_value=0.2, max_value=5))
def test_arrivals_ascend_in_their_window_and_their_number_is_the_load(
    rate_qps: float, duration_s: float, seed: int, process: str, cv: float
) -> None:
    arrivals = Arrivals.model_validate({"process": process, "cv": cv})
    times = draw(arrivals, rate_qps=rate_qps, duration_s=duration_s, seed=seed)
    assert len(times) == max(1, round(rate_qps * duration_s))
    assert (np.diff(times) >= 0).all()
    assert 0 <= times[0] <= times[-1] <= duration_s
    assert (times == draw(arrivals, rate_qps=rate_qps, duration_s=duration_s, seed=seed)).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=8), min_size=1, max_size=6).filter(lambda s: sum(s) > 0.1), SEEDS)
def test_steps_offer_their_mean_and_nothing_where_the_rate_is_zero(steps: list[float], seed: int) -> None:
    times = draw(Arrivals(process="steps", steps=tuple(steps)), rate_qps=50, duration_s=6, seed=seed)
    assert len(times) == max(1, round(50 * float(np.mean(steps)) * 6))
    counts = np.histogram(times, bins=np.linspace(0, 6, len(steps) + 1))[0]
    assert all(count == 0 for count, rate in zip(counts, steps, strict=True) if rate == 0)


@settings(max_examples=60, deadline=None)
@given(st.floats(min_value=0.05, max_value=0.97), st.floats(min_value=1e-4, max_value=1), st.floats(0.01, 0.995))
def test_md1_waits_less_than_mm1_and_its_quantile_inverts_its_distribution(
    load: float, service_s: float, share: float
) -> None:
    rate_qps = load / service_s
    exact_s = md1_sojourn_s(share, rate_qps=rate_qps, service_s=service_s)
    assert exact_s >= service_s
    assert md1_waiting_cdf(exact_s - service_s, rate_qps=rate_qps, service_s=service_s) >= share - 1e-6
    if share > 0.7:
        assert exact_s <= mm1_sojourn_s(share, rate_qps=rate_qps, service_s=service_s) + service_s


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=10), min_size=1, max_size=50), st.floats(min_value=0, max_value=2))
def test_nobody_leaves_a_queue_sooner_than_served_nor_out_of_turn(gaps: list[float], service_s: float) -> None:
    arrivals = np.cumsum(gaps)
    sojourns = lindley_s(arrivals, service_s)
    assert (sojourns >= service_s - 1e-9).all()
    assert (np.diff(arrivals + sojourns) >= service_s - 1e-6).all()


@settings(max_examples=100, deadline=None)
@given(st.floats(min_value=1, max_value=5000), st.floats(min_value=0.1, max_value=10))
def test_the_search_ends_in_a_bracket_around_any_limit(limit_qps: float, guess: float) -> None:
    found = search(
        lambda qps: Probe(target_qps=qps, valid=True, meets_slo=qps <= limit_qps, p99_s=None, error_rate=0),
        start_qps=guess * limit_qps,
        limit_qps=1e9,
        resolution=0.05,
        max_probes=40,
    )
    assert found.passed_qps is not None
    assert found.failed_qps is not None
    assert found.passed_qps <= limit_qps < found.failed_qps <= 1.0500001 * found.passed_qps


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_goes_over_the_wire_as_json(texts: list[str]) -> None:
    oip = wire_form("oip", model="m", template=None)
    hf = wire_form("hf", model="m", template=None)
    assert json.loads(oip.body(texts))["inputs"][0]["data"] == texts
    assert json.loads(hf.body(texts))["inputs"] == (texts[0] if len(texts) == 1 else texts)
