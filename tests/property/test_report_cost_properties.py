"""Laws of the cost model that hold for all inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report import model

money = st.floats(1e-6, 1e9)
cents = st.floats(1e-12, 1e3)
rates = st.floats(1e-2, 1e6)


@given(fixed=money, per_query=cents, fewer=st.floats(0, 1e12), more=st.floats(0, 1e12))
def test_more_queries_never_lower_the_total(fixed, per_query, fewer, more):
    low, high = sorted((fewer, more))
    assert model.total(fixed, per_query, low) <= model.total(fixed, per_query, high)


@given(fixed=money, per_query=cents)
def test_break_even_is_where_serving_has_cost_what_training_did(fixed, per_query):
    queries = model.break_even(fixed, per_query)
    assert model.total(fixed, per_query, queries) == pytest.approx(2 * fixed)


@given(base_fixed=money, extra=st.floats(0.001, 1e6), dear=st.floats(1e-3, 1e3), ratio=st.floats(0.01, 0.99))
def test_payback_is_where_the_two_lines_meet(base_fixed, extra, dear, ratio):
    queries = model.payback(extra, dear * ratio, dear)
    mine = model.total(base_fixed + extra, dear * ratio, queries)
    assert mine == pytest.approx(model.total(base_fixed, dear, queries))


@given(extra=money, cheap=cents, more=st.floats(0, 1e3))
def test_a_dearer_query_never_pays_back(extra, cheap, more):
    assert model.payback(extra, cheap + more, cheap) is None


@given(fixed=money, per_query=cents, unit=st.floats(1e-3, 1e3))
def test_units_cancel(fixed, per_query, unit):
    assert model.break_even(fixed * unit, per_query * unit) == pytest.approx(model.break_even(fixed, per_query))


@given(peak=rates, best=rates)
def test_replicas_carry_the_peak_and_one_fewer_does_not(peak, best):
    num = model.replicas(peak, best)
    assert num * best >= peak * (1 - 1e-6)
    assert num == 1 or (num - 1) * best < peak


@given(per_hour=cents, best=rates, share=st.floats(0.01, 1))
def test_idle_time_never_makes_a_query_cheaper(per_hour, best, share):
    full = model.rent_per_query(per_hour, best)
    assert model.fleet_per_query(per_hour, 1, best * share) >= full * (1 - 1e-9)
