"""The whole report over small record sets: the record's shape, the figures by hand, and what is refused."""

import json

import pytest

from report.build import assess, build_report, draw
from report.config import ReportConfig, Traffic
from report.evidence import gather
from testbed.errors import UserError
from testbed.records import BatchingSweep, Energy, Gpu, Proof, SweepPoint, load_as
from testbed.records.cost import CostReport
from tests import records_for_report as made
from tests.series_for_report import write_series

CORE_HOUR_USD = 0.08925 / 2  # aws-c7i-large, the default reference, has two cores; each server was given one


def assessed(run, **config):
    return assess(ReportConfig(**config), gather(run))


def row_of(report, variant, profile="cpu"):
    return next(row for row in report.serving if (row.variant, row.profile) == (variant, profile))


def crossing_of(crossings, variant, profile="cpu"):
    return next(c for c in crossings if (c.variant, c.profile) == (variant, profile))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    run = made.write_run(tmp_path_factory.mktemp("built"))
    return build_report(ReportConfig(), run=run), run / "report"


def test_writes_page_markdown_record_and_charts(built):
    report, folder = built
    assert load_as(CostReport, folder / "report.json") == report
    assert report.headline in (folder / "report.md").read_text()
    assert report.headline in (folder / "index.html").read_text()
    charts = {path.name for path in (folder / "charts").iterdir()}
    assert {"cumulative-cost.svg", "cumulative-cost.png", "latency-against-load.svg", "step-split.svg"} <= charts
    assert not list(folder.glob(".*"))


def test_record_has_the_promised_top_level(built):
    data = json.loads((built[1] / "report.json").read_text())
    promised = {"experiment", "machine", "headline", "training", "serving", "break_even", "payback"}
    assert promised <= data.keys()
    stage = {"wall_s", "device_hours", "energy_j", "energy_method", "cost_usd", "accuracy"}
    assert all(stage <= cost.keys() for cost in data["training"].values())
    assert {"queries", "reason", "variant", "profile"} <= data["break_even"][0].keys()


def test_cost_of_a_query_by_hand(tmp_path):
    report = assessed(made.write_run(tmp_path))
    row = row_of(report, "student-int8")
    assert row.cost_usd_per_million_queries == pytest.approx(CORE_HOUR_USD / 3600 / 400 * 1e6)
    assert row.price.basis == "projection"
    assert any("unknown to the price book" in line for line in report.assumptions)


def test_cost_of_making_by_hand(tmp_path):
    report = assessed(made.write_run(tmp_path))
    # Training had both cores: 240 s and 170 s; each export 20 s. INT8 was made from FP32, so both exports count.
    made_int8 = row_of(report, "student-int8").one_time.total_usd
    assert made_int8 == pytest.approx((240 + 170 + 20 + 20) / 3600 * 0.08925)
    assert row_of(report, "teacher-fp32").one_time.total_usd == pytest.approx((240 + 20) / 3600 * 0.08925)


def test_break_even_and_payback_by_hand(tmp_path):
    report = assessed(made.write_run(tmp_path))
    even = crossing_of(report.break_even, "teacher-fp32")
    assert even.queries == pytest.approx(260 * 2 * 80)  # two cores for 260 s against one core at 80 queries/s
    back = crossing_of(report.payback, "student-int8")
    assert back.queries == pytest.approx(190 * 2 / (1 / 80 - 1 / 400))
    assert back.interval.low < back.queries < back.interval.high
    assert not [c for c in report.payback if c.variant == "teacher-fp32"]


def test_the_precision_alone_is_held_against_its_own_fp32(tmp_path):
    report = assessed(made.write_run(tmp_path))
    (alone,) = report.precision_payback
    assert (alone.variant, alone.against) == ("student-int8", "student-fp32")
    assert alone.queries == pytest.approx(20 * 2 / (1 / 160 - 1 / 400))  # one more export, on two cores


def test_a_variant_that_is_not_cheaper_never_pays_back(tmp_path):
    run = made.write_run(tmp_path)
    made.write_row(run / "loads", "student-int8", "cpu", (60.0, 62.0, 58.0))
    back = crossing_of(assessed(run).payback, "student-int8")
    assert back.queries is None
    assert back.reason.startswith("never")


def test_an_invalid_row_has_no_cost_and_is_not_chosen(tmp_path):
    run = made.write_run(tmp_path)
    check = made.Check(name="send_lag", passed=False, measured=0.2, bound="≤ 0.005 s", advice="more cores")
    spoilt = made.load_run("student-int8", "cpu", 400.0, 0.048, valid=False, checks=(check,), purpose="confirm")
    made.write(spoilt, run / "loads" / "student-int8.cpu.confirm.json")
    report = assessed(run)
    row = row_of(report, "student-int8")
    assert (row.valid, row.invalid_reasons, row.cost_usd_per_million_queries) == (False, ("send_lag",), None)
    assert report.decision.variant == "student-fp32"
    assert crossing_of(report.break_even, "student-int8").queries is None


def test_energy_of_different_methods_is_never_mixed(tmp_path):
    run = made.write_run(tmp_path)
    counted = Energy(energy_j=1000.0, method="rapl", reason="CPU packages")
    made.write(
        made.training_run("teacher", 240.0, usage=made.usage(240.0, energy=counted)), run / "teacher/record.json"
    )
    report = assessed(run)
    even = crossing_of(report.break_even, "teacher-fp32")
    assert even.queries is not None
    assert even.queries_energy is None
    assert report.training["teacher"].energy_method == "rapl"


def test_energy_is_estimated_and_says_so(tmp_path):
    report = assessed(made.write_run(tmp_path))
    row = row_of(report, "teacher-fp32")
    # One of two cores of the reference: 0.74 W idle, 3.5 W busy, 90 % busy, 80 queries a second.
    assert row.energy_j_per_query == pytest.approx((0.74 + 2.76 * 0.9) / 80)
    assert row.energy_method == "estimate"
    assert "aws-c7i-large" in row.energy_reason


def test_traffic_is_paid_in_whole_replicas(tmp_path):
    report = assessed(made.write_run(tmp_path), traffic=Traffic(mean_qps=100, peak_qps=450))
    at = row_of(report, "student-int8").at_traffic
    assert at.replicas == 2
    assert at.utilisation == pytest.approx(100 / 800)
    assert at.usd_per_million_queries == pytest.approx(2 * CORE_HOUR_USD / 3600 / 100 * 1e6)


def test_accuracy_floor_and_budget_bar_a_row(tmp_path):
    run = made.write_run(tmp_path)
    strict = assessed(run, accuracy_floor=0.999)
    assert strict.decision.variant == "teacher-fp32"
    poor = assessed(run, traffic=Traffic(mean_qps=10, peak_qps=10), budget_usd_per_month=0.01)
    assert poor.decision.variant is None
    assert "Nothing can be recommended" in poor.headline
    assert all("budget" in loser.reason for loser in poor.decision.losers)


def test_trials_are_added_and_named(tmp_path):
    run = made.write_run(tmp_path)
    plain, tried = assessed(run), assessed(run, trials_share=0.5)
    extra = row_of(tried, "student-int8").one_time.total_usd - row_of(plain, "student-int8").one_time.total_usd
    assert extra == pytest.approx(0.5 * (240 + 170) / 3600 * 0.08925)
    assert any("50%" in line for line in tried.assumptions)


def test_a_teacher_without_a_record_leaves_its_cost_open(tmp_path):
    run = made.write_run(tmp_path)
    (run / "teacher" / "record.json").unlink()
    report = assessed(run)
    even = crossing_of(report.break_even, "student-int8")
    assert even.queries is None
    assert "no record" in even.reason
    assert row_of(report, "student-int8").cost_usd_per_million_queries is not None


def test_a_bundle_that_was_not_load_tested_is_refused(tmp_path):
    made.write(made.manifest(), tmp_path / "bundle" / "manifest.json")
    with pytest.raises(UserError, match="no load test"):
        gather(tmp_path)


def test_load_tests_of_another_bundle_are_refused(tmp_path):
    run = made.write_run(tmp_path)
    proof = made.load_run("student-int8", "cpu", 1, 0.01).proof.model_copy(update={"file_sha256": "f" * 64})
    made.write(made.load_run("student-int8", "cpu", 100.0, 0.02, proof=proof), run / "loads" / "other.json")
    with pytest.raises(UserError, match=r"other\.json: served ffffffffffff…, which is not the bundle's student-int8"):
        gather(run)


@pytest.mark.parametrize("damage", ['{"kind": "LoadTestRun"', '{"kind": "Capacity", "schema_version": 1}', "[]"])
def test_a_damaged_record_is_named(tmp_path, damage):
    run = made.write_run(tmp_path)
    (run / "loads" / "broken.json").write_text(damage)
    with pytest.raises(UserError, match=r"broken\.json"):
        gather(run)


def test_a_profile_measured_on_two_machines_is_refused(tmp_path):
    run = made.write_run(tmp_path)
    elsewhere = made.MACHINE.model_copy(update={"cpu_model": "Other CPU"})
    run_there = made.load_run("student-int8", "cpu", 100.0, 0.02).model_copy(update={"machine": elsewhere})
    made.write(run_there, run / "loads" / "elsewhere.json")
    with pytest.raises(UserError, match="different machines"):
        gather(run)


def test_capacities_under_two_slos_are_refused(tmp_path):
    run = made.write_run(tmp_path)
    made.write(made.capacity("student-int8", "cpu", (9.0,), slo_s=0.1), run / "loads" / "lenient.capacity.json")
    with pytest.raises(UserError, match="several SLOs"):
        gather(run)


def test_series_of_load_tests_become_charts_and_leave_the_rows_alone(tmp_path):
    run = made.write_run(tmp_path)
    before = assessed(run)
    write_series(run / "loads", "student-int8", "cpu")
    swept = made.load_run("student-int8", "cpu", 900.0, 0.001, purpose="sweep none", goodput_qps=900.0)
    made.write(swept, run / "loads" / "student-int8.cpu.Server.99.json")
    after = assessed(run)
    assert row_of(after, "student-int8").saturation_qps == row_of(before, "student-int8").saturation_qps
    drawn = {figure.name: figure for figure in draw(after, gather(run))}
    assert "93%" in drawn["overload"].caption
    assert "none 100, packed 300" in drawn["batching"].caption


def test_padding_is_a_step_of_its_own_where_the_policies_were_swept(tmp_path):
    run = made.write_run(tmp_path)
    plain = [step.name for step in assessed(run).ablation["cpu"]]
    points = [
        SweepPoint(
            policy=policy, target_qps=qps, goodput_qps=qps, p50_s=0.01, p99_s=0.02, mean_batch_texts=2, padding_ratio=1,
            cpu_s_per_query=cpu_s, energy_j_per_query=None, energy_method=None, meets_slo=qps < 400, valid=True,
            run="x",
        )
        for policy, cpu_s in (("none", 0.009), ("sorted", 0.003), ("fixed", 0.004), ("packed", 0.002))
        for qps in (100.0, 300.0, 500.0)
    ]  # fmt: skip
    swept = BatchingSweep(
        **made.shared(), variant="student-int8", profile="cpu", slo_s=made.SLO_S, points=tuple(points), batch_times={}
    )
    made.write(swept, run / "loads" / "student-int8.cpu.sweep.json")
    steps = assessed(run).ablation["cpu"]
    assert [step.name for step in steps] == [*plain[:-1], "batched, with padding", "packed, without padding"]
    assert steps[-1].factor == pytest.approx(1.5)
    assert steps[-1].usd_per_million_queries == pytest.approx(CORE_HOUR_USD / 3600 / 400 * 1e6)


def test_other_devices_need_the_speed_that_their_price_asks_for(tmp_path):
    report = assessed(made.write_run(tmp_path), traffic=Traffic(mean_qps=100, peak_qps=450))
    chosen = row_of(report, report.decision.variant)
    for device in report.alternatives:
        usd_per_million = device.usd_per_hour / 3600 / device.needed_qps * 1e6
        assert usd_per_million == pytest.approx(chosen.cost_usd_per_million_queries)
    assert {"cpu", "gpu", "edge"} == {device.kind for device in report.alternatives}


def test_a_server_of_the_generators_own_ceiling_is_not_a_row(tmp_path):
    run = made.write_run(tmp_path)
    ceiling = made.load_run("student-int8", "external", 10.0, 0.001).model_copy(update={"variant": "null-server"})
    made.write(ceiling, run / "loads" / "null-server.json")
    assert "null-server" not in {row.variant for row in assessed(run).serving}


def test_a_bundle_that_was_trained_elsewhere_still_gets_a_page(tmp_path):
    run = made.write_run(tmp_path)
    for stage in ("teacher", "student"):
        (run / stage / "record.json").unlink()
    report = build_report(ReportConfig(), run=run)
    assert set(report.training) == {"quantize"}
    assert all(crossing.queries is None for crossing in report.break_even)
    page = (run / "report" / "index.html").read_text()
    assert "has no record" in page
    assert "cumulative-cost" not in page


def write_gpu_row(run, gpu_name):
    machine = made.MACHINE.model_copy(update={"gpus": (Gpu(name=gpu_name, memory_bytes=16 * 10**9, driver="570"),)})
    proof = Proof(
        providers={"CUDAExecutionProvider": 100}, isa=("avx2",), threads=1, precision="fp32",
        file_sha256=made.SHA["teacher-fp32"],
    )  # fmt: skip
    search = made.capacity("teacher-fp32", "gpu", (3000.0, 3100.0)).model_copy(update={"machine": machine})
    made.write(search, run / "loads" / "teacher-fp32.gpu.capacity.json")
    confirm = made.load_run("teacher-fp32", "gpu", 3050.0, 0.04, proof=proof, purpose="confirm")
    made.write(confirm.model_copy(update={"machine": machine}), run / "loads" / "teacher-fp32.gpu.confirm.json")


def test_a_gpu_profile_is_charged_for_the_whole_gpu_machine(tmp_path):
    run = made.write_run(tmp_path)
    write_gpu_row(run, "Tesla T4")
    report = assessed(run, traffic=Traffic(mean_qps=2000, peak_qps=3000))
    row = row_of(report, "teacher-fp32", "gpu")
    assert (row.price.device, row.price.basis, row.price.share) == ("aws-g4dn-xlarge", "matched", 1)
    assert row.cost_usd_per_million_queries == pytest.approx(0.526 / 3600 / 3050 * 1e6)
    assert row_of(report, "teacher-fp32", "cpu").price.basis == "projection"
    machines = next(finding for finding in report.audit if finding.subject == "machines")
    assert machines.status == "ok"  # one host; its GPU is told by the proof and the price
    flip = next(flip for flip in report.decision.flips if flip.lever == "price")
    assert flip.threshold is not None


def test_an_unknown_gpu_is_refused_until_it_is_named(tmp_path):
    run = made.write_run(tmp_path)
    write_gpu_row(run, "Home-made GPU")
    with pytest.raises(UserError, match="Home-made GPU"):
        assessed(run)
    named = assessed(run, devices={"gpu": "aws-g6-xlarge"})
    assert row_of(named, "teacher-fp32", "gpu").price.basis == "named"
