"""Laws of the decision over invented offers."""

from hypothesis import assume, given
from hypothesis import strategies as st

from report.config import ReportConfig, Traffic
from report.decision import best_offer, offer
from testbed.metrics import accuracy
from testbed.records.cost import OneTimeCost, Price, ServingCost

ROWS = 200


def row(variant, qps, usd_per_hour, made_usd, right):
    price = Price(
        device="d", name="d", basis="named", usd_per_hour=usd_per_hour, share=1, watts_idle=None, watts_busy=None,
        source="s", date="2026-01-01", note="n",
    )  # fmt: skip
    made = OneTimeCost(parts_usd={}, total_usd=made_usd, energy_j=None, energy_method=None, gco2e=None)
    return ServingCost(
        variant=variant, profile="cpu", valid=True, invalid_reasons=(), max_qps_at_slo=qps, latency_p50_s=None,
        latency_p99_s=None, single_stream_p50_s=None, single_stream_p90_s=None,
        cost_usd_per_million_queries=usd_per_hour / 3600 / qps * 1e6, energy_j_per_query=None, energy_method=None,
        accuracy=accuracy([0] * right + [1] * (ROWS - right), [0] * ROWS), size_bytes=1,
        peak_rss_bytes=None, proof=None, price=price, one_time=made,
    )  # fmt: skip


rows = st.lists(
    st.tuples(st.floats(1, 1e4), st.floats(0.01, 100), st.floats(0, 1e4), st.integers(1, ROWS)), min_size=1, max_size=5
).map(lambda drawn: tuple(row(f"v{index}", *figures) for index, figures in enumerate(drawn)))
traffic = st.tuples(st.floats(0.1, 1e4), st.floats(1, 10)).map(lambda t: Traffic(mean_qps=t[0], peak_qps=t[0] * t[1]))


@given(rows=rows, traffic=traffic, more=st.floats(1, 100))
def test_more_traffic_never_lowers_what_is_spent(rows, traffic, more):
    config = ReportConfig(traffic=traffic)
    for each in rows:
        assert offer(each, config, traffic_factor=more).usd >= offer(each, config).usd


@given(rows=rows, traffic=traffic, low=st.floats(0, 1), high=st.floats(0, 1))
def test_a_higher_floor_never_makes_it_cheaper(rows, traffic, low, high):
    config = ReportConfig(traffic=traffic)
    lenient, strict = (best_offer(rows, floor, config) for floor in sorted((low, high)))
    assume(strict is not None)
    assert lenient is not None
    assert strict.usd >= lenient.usd / 1.01 - 1e-9


@given(rows=rows, traffic=traffic)
def test_the_choice_is_within_a_per_cent_of_the_cheapest(rows, traffic):
    config = ReportConfig(traffic=traffic)
    chosen = best_offer(rows, 0.0, config)
    assert chosen.usd <= min(offer(each, config).usd for each in rows) * 1.01 + 1e-9


@given(rows=rows, traffic=traffic, budget=st.floats(0.01, 1e6))
def test_the_budget_is_kept(rows, traffic, budget):
    chosen = best_offer(rows, 0.0, ReportConfig(traffic=traffic, budget_usd_per_month=budget))
    assert chosen is None or chosen.usd_per_month <= budget
