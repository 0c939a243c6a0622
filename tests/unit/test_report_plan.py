"""The fleet plan over a server whose batch times are known, and bad traffic curves."""

import itertools

import numpy as np
import pytest

from report.config import FleetConfig, ReportConfig
from report.evidence import gather
from report.fleet.plan import headroom, plan_fleet
from report.fleet.traffic import read_curve
from report.fleet.validation import check_simulation
from testbed.errors import UserError
from testbed.records import load
from tests import records_for_report as made
from tests.series_for_report import write_rows

ROW = ("student-int8", "cpu")
QUICK = FleetConfig(num_slots=12, queries_a_slot=2000)
DAY = "hour,qps\n0,300\n6,200\n12,1500\n18,1100\n24,300\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose int8 row has raw rows: 2 ms a batch and 40 µs a token, eight texts at most."""
    folder = made.write_run(tmp_path_factory.mktemp("run"))
    for path in sorted((folder / "loads").glob("student-int8.cpu.*.json")):
        record = load(path)
        if getattr(record, "target_qps", None):
            rows = path.with_suffix(".parquet")
            write_rows(rows, record.target_qps, fixed_s=0.002, per_token_s=4e-5)
            made.write(record.model_copy(update={"rows_file": rows.name}), path)
    return folder


@pytest.fixture(scope="module")
def planned(run):
    traffic = run / "day.csv"
    traffic.write_text(DAY)
    return plan_fleet(ReportConfig(fleet=QUICK), run=run, traffic=traffic, variant=ROW[0], profile=ROW[1])


def test_plan_is_a_record_beside_the_report(run, planned):
    assert load(run / "report" / "plan.json") == planned
    assert planned.num_simulated > 0
    assert planned.queries_per_day == pytest.approx(np.trapezoid([300, 200, 1500, 1100, 300], dx=6) * 3600)


def test_more_replicas_carry_no_less_each(planned):
    capacities = list(planned.qps_per_replica.values())
    assert all(a <= b for a, b in itertools.pairwise(capacities))
    assert 800 < capacities[0] < 1250  # eight texts of 14.8 tokens take 6.7 ms


def test_both_fleets_keep_the_slo_and_the_rule_is_cheaper(planned):
    static, ruled = planned.fleets
    assert static.p99_s <= made.SLO_S
    assert ruled.p99_s <= made.SLO_S
    assert ruled.usd_per_day < static.usd_per_day
    assert ruled.utilisation > static.utilisation
    assert ruled.mean_replicas < ruled.max_replicas
    assert ruled.energy_j_per_query < static.energy_j_per_query


def test_replicas_follow_the_load(planned):
    busiest = max(planned.slots, key=lambda slot: slot.offered_qps)
    quietest = min(planned.slots, key=lambda slot: slot.offered_qps)
    assert busiest.replicas > quietest.replicas
    assert all(slot.within_slo > 0.98 for slot in planned.slots)


def test_simulation_agrees_with_a_server_of_known_batch_times(run):
    checks = check_simulation(*ROW, gather(run), deadline_s=10)
    assert len(checks) == 6
    assert [check.target_qps for check in checks] == sorted(check.target_qps for check in checks)
    assert all(abs(check.p50_error) < 0.15 for check in checks)
    assert all(abs(check.p99_error) < 0.25 for check in checks)


def test_scaling_to_a_thousand_million_queries_a_day(run):
    traffic = run / "day.csv"
    traffic.write_text(DAY)
    config = ReportConfig(fleet=QUICK)
    plan = plan_fleet(config, run=run, traffic=traffic, variant=ROW[0], profile=ROW[1], queries_per_day=1e9)
    assert plan.queries_per_day == pytest.approx(1e9)
    assert plan.fleets[0].max_replicas * plan.qps_per_replica[64] >= plan.peak_qps
    assert plan.fleets[0].p99_s <= made.SLO_S


def test_headroom_is_what_the_curve_grows_while_a_replica_starts(tmp_path):
    path = tmp_path / "ramp.csv"
    path.write_text("time_s,qps\n0,100\n1000,200\n2000,200\n")
    curve = read_curve(path)
    assert headroom(curve, 0) == pytest.approx(1)
    assert headroom(curve, 500) == pytest.approx(1.5, rel=0.01)
    assert curve.mean_qps == pytest.approx(175)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "header must name qps"),
        ("", "header must name qps"),
        ("hour,qps\n0,1\n", "at least two rows"),
        ("hour,qps\n1,1\n0,1\n", "times must ascend"),
        ("hour,qps\n0,x\n1,2\n", "not a number"),
        ("hour,qps\n0\n1,2\n", "not a number"),
        ("hour,qps\n0,-1\n1,2\n", "not negative"),
        ("hour,qps\n0,nan\n1,2\n", "finite"),
        ("hour,qps\n0,0\n24,0\n", "no traffic at all"),
    ],
)
def test_a_bad_curve_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"curve\.csv: .*{message}"):
        read_curve(path)


def test_a_missing_curve_and_an_unknown_row_are_refused(run):
    with pytest.raises(UserError, match="not a readable CSV"):
        read_curve(run / "none.csv")
    traffic = run / "day.csv"
    traffic.write_text(DAY)
    with pytest.raises(UserError, match="no row student-int8 on gpu"):
        plan_fleet(ReportConfig(), run=run, traffic=traffic, variant="student-int8", profile="gpu")
