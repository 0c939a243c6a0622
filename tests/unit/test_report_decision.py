"""The decision and its sensitivity: what is chosen, why the others lost, and where the choice changes."""

import itertools

import pytest

from report.build import assess
from report.config import ReportConfig, Traffic
from report.curves import Point, measured_curves, qps_within
from report.decision import accuracy_floor, best_offer, decide
from report.evidence import gather
from report.sensitivity import at_slo
from tests import records_for_report as made


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    return gather(made.write_run(tmp_path_factory.mktemp("run"), profiles=("cpu", "edge")))


def decided(evidence, **config):
    report = assess(ReportConfig(**config), evidence)
    return report, report.decision


def test_many_queries_choose_the_fastest(evidence):
    _, decision = decided(evidence, traffic=Traffic(mean_qps=1000, peak_qps=2000))
    assert (decision.variant, decision.profile, decision.replicas) == ("student-int8", "cpu", 5)
    assert decision.batching == pytest.approx(1 + 3 * 400 / 410)
    assert {(loser.variant, loser.profile) for loser in decision.losers} == {
        (name, profile) for name in made.RATES for profile in ("cpu", "edge")
    } - {("student-int8", "cpu")}
    assert all(loser.extra_usd > 0 for loser in decision.losers)


def test_a_trickle_chooses_the_most_accurate_of_the_same_cost(evidence):
    _, decision = decided(evidence, traffic=Traffic(mean_qps=1, peak_qps=2))
    assert decision.variant == "teacher-fp32"
    assert any("the same cost within 1 %" in loser.reason for loser in decision.losers)


def test_each_flip_is_where_the_choice_changes(evidence):
    traffic = Traffic(mean_qps=40, peak_qps=150)
    report, decision = decided(evidence, traffic=traffic)
    config, floor = ReportConfig(traffic=traffic), accuracy_floor(report.serving, ReportConfig())
    crossed = [flip for flip in decision.flips if flip.lever == "traffic" and flip.threshold]
    assert len(crossed) == 2
    for flip in crossed:
        factor = flip.threshold / traffic.mean_qps
        outwards = 1.001 if factor > 1 else 0.999
        after = best_offer(report.serving, floor, config, traffic_factor=factor * outwards)
        before = best_offer(report.serving, floor, config, traffic_factor=factor / outwards)
        assert after.name == flip.to
        assert before.name == f"{decision.variant} on {decision.profile}"


def test_raising_the_floor_above_the_choice_changes_it(evidence):
    _, decision = decided(evidence, traffic=Traffic(mean_qps=1000, peak_qps=2000))
    flip = next(flip for flip in decision.flips if flip.lever == "accuracy_floor")
    assert flip.threshold == pytest.approx(made.RIGHT["student-int8"] / made.NUM_TEST)
    assert flip.to == "student-fp32 on cpu"


def test_one_device_for_all_has_no_price_that_flips_it(evidence):
    _, decision = decided(evidence)
    flip = next(flip for flip in decision.flips if flip.lever == "price")
    assert (flip.threshold, flip.to) == (None, None)


def test_a_dearer_device_loses_to_the_other_profile(evidence):
    devices = {"cpu": "aws-c7i-large", "edge": "raspberry-pi-5-8gb"}
    _, decision = decided(evidence, devices=devices, traffic=Traffic(mean_qps=1000, peak_qps=2000))
    assert decision.profile == "edge"
    flip = next(flip for flip in decision.flips if flip.lever == "price")
    assert flip.threshold > 1
    assert flip.to == "student-int8 on cpu"


def test_capacity_at_another_slo_never_contradicts_the_confirmed_one(evidence):
    report, _ = decided(evidence)
    row = report.serving[0]
    points = (Point(20, 0.011), Point(40, 0.013), Point(100, 0.15), Point(90, 0.04))
    assert qps_within(points, made.SLO_S, row, made.SLO_S) == row.max_qps_at_slo
    assert qps_within(points, 0.012, row, made.SLO_S) == 20
    assert qps_within(points, 0.045, row, made.SLO_S) == row.max_qps_at_slo  # 90 was never confirmed
    assert qps_within(points, 0.06, row, made.SLO_S) == row.max_qps_at_slo  # nor is it by a looser SLO
    assert qps_within(points, 0.2, row, made.SLO_S) == 100
    assert qps_within(points, 0.001, row, made.SLO_S) is None


def test_a_stricter_slo_never_raises_a_capacity(evidence):
    report, _ = decided(evidence)
    curves = measured_curves(evidence)
    loads = [
        [row.max_qps_at_slo or 0 for row in at_slo(report.serving, curves, slo_s, made.SLO_S)]
        for slo_s in (0.005, 0.012, 0.02, 0.05, 0.2, 0.5)
    ]
    for strict, loose in itertools.pairwise(loads):
        assert all(a <= b for a, b in zip(strict, loose, strict=True))


def test_ablation_multiplies_to_the_whole(evidence):
    report, _ = decided(evidence)
    steps = report.ablation["cpu"]
    assert [step.to_variant for step in steps] == ["teacher-fp32", "student-fp32", "student-int8", "student-int8"]
    product = 1.0
    for step in steps[1:]:
        product *= step.factor
    assert product == pytest.approx(steps[0].usd_per_million_queries / steps[-1].usd_per_million_queries)
    assert steps[-1].qps == pytest.approx(400)


@pytest.mark.parametrize("accuracy_floor", [0.9, 0.99])
@pytest.mark.parametrize("mean_qps", [0.1, 10, 100, 1000, 10_000])
def test_a_variant_slower_than_its_parent_is_shown_and_not_recommended(evidence, mean_qps, accuracy_floor):
    report, _ = decided(evidence)
    # INT8 as on a CPU without fast 8-bit products: three quarters of its FP32 parent's capacity.
    parents = {row.profile: row for row in report.serving if row.variant == "student-fp32"}
    slow = tuple(
        row.model_copy(update={"max_qps_at_slo": 0.75 * parents[row.profile].max_qps_at_slo, "qps_interval": None})
        if row.variant == "student-int8"
        else row
        for row in report.serving
    )
    config = ReportConfig(
        traffic=Traffic(mean_qps=mean_qps, peak_qps=2 * mean_qps), accuracy_floor=accuracy_floor, horizon_days=365
    )
    decision = decide(slow, config, batching={})
    assert decision.variant in {"student-fp32", "teacher-fp32"}
    losers = [loser for loser in decision.losers if loser.variant == "student-int8"]
    assert {loser.profile for loser in losers} == {"cpu", "edge"}
    assert all(loser.reason for loser in losers)
    if mean_qps >= 1000 and accuracy_floor == 0.9:
        (beside,) = (loser for loser in losers if loser.profile == decision.profile)
        assert "120 queries/s within the SLO against 160" in beside.reason
