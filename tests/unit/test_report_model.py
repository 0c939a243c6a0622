"""The cost model against figures worked out by hand, and against the parity table of Luccioni et al. 2023."""

import pytest

from report import model


@pytest.mark.parametrize(
    ("training_kwh", "fine_tuning_kwh", "inference_kwh", "printed", "slack"),
    [
        (51_686, 7_571, 1.0e-4, 592_570_000, 1),
        # The table's inputs for 3B add up to 28,876 kWh; its parity needs 28,879: it was not made from what is printed.
        (25_634, 3_242, 7.3e-5, 395_602_740, 3.01 / 7.3e-5),
        (17_052, 1_081, 6.2e-5, 292_467_741, 1),
        (10_505, 543, 5.4e-5, 204_592_592, 1),
    ],
    ids=["BLOOMz-7B", "BLOOMz-3B", "BLOOMz-1B", "BLOOMz-560M"],
)
def test_parity_of_luccioni_et_al_table_5(training_kwh, fine_tuning_kwh, inference_kwh, printed, slack):
    assert abs(model.break_even(training_kwh + fine_tuning_kwh, inference_kwh) - printed) <= slack


def test_rent_by_hand():
    # 0.36 usd an hour is 0.0001 usd a second; at 50 queries a second a query costs 2 millionths of a usd.
    assert model.rent_per_query(0.36, 50) == pytest.approx(2e-6)


def test_payback_by_hand():
    # 3 usd more to make, 1 millionth saved a query.
    assert model.payback(3.0, 2e-6, 3e-6) == pytest.approx(3e6)


def test_no_payback_without_a_saving():
    assert model.payback(3.0, 3e-6, 3e-6) is None
    assert model.payback(0.0, 4e-6, 3e-6) is None


def test_nothing_extra_is_paid_back_at_once():
    assert model.payback(0.0, 2e-6, 3e-6) == 0
    assert model.payback(-1.0, 2e-6, 3e-6) == 0


def test_a_free_query_has_no_break_even():
    with pytest.raises(ValueError, match="must cost something"):
        model.break_even(1.0, 0.0)


@pytest.mark.parametrize(("peak", "expected"), [(0.1, 1), (100, 1), (100.1, 2), (200, 2), (201, 3)])
def test_replicas(peak, expected):
    assert model.replicas(peak, 100) == expected


def test_idle_replicas_are_paid_for():
    # Two replicas of 0.36 usd an hour and 10 queries a second in all: 2e-4 usd a second over 10.
    assert model.fleet_per_query(0.36, 2, 10) == pytest.approx(2e-5)
    assert model.utilisation(10, 2, 50) == pytest.approx(0.1)


def test_idle_energy_is_counted():
    # 3 W idle; 5 W at 20 queries a second, so 0.1 J of each query is its own. One replica, 1 query a second.
    assert model.idle_aware_j_per_query(3.0, 5.0, 20.0, 1, 1.0) == pytest.approx(3.1)
    # At the full load it is what the meter says.
    assert model.idle_aware_j_per_query(3.0, 5.0, 20.0, 1, 20.0) == pytest.approx(5.0 / 20.0)


def test_sardana_accounting():
    assert model.training_flops_6nd(7e9, 1e12) == pytest.approx(4.2e22)
    assert model.inference_flops_2nd(7e9, 1) == pytest.approx(1.4e10)


def test_power_is_linear_and_bounded():
    assert model.power_w(2, 10, 0.25) == pytest.approx(4)
    assert model.power_w(2, 10, 7) == pytest.approx(10)
