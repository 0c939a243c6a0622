"""The headline says what to deploy, and what comes after it."""

from report.build import assess, draw
from report.config import ReportConfig, Traffic
from report.evidence import gather
from tests import records_for_report as made


def headline(run, **config):
    return assess(ReportConfig(**config), gather(run)).headline


def test_a_cheaper_choice_is_held_against_the_baseline(tmp_path):
    told = headline(made.write_run(tmp_path), traffic=Traffic(mean_qps=300, peak_qps=900))
    assert told.startswith("Deploy student-int8 on cpu: $0.0310 per million queries, 5 times cheaper than teacher-fp32")
    assert "pays back after 38,000 queries" in told
    assert told.endswith("after 360,000.")


def test_where_little_traffic_makes_all_equal_the_takeover_is_told(tmp_path):
    told = headline(made.write_run(tmp_path), traffic=Traffic(mean_qps=20, peak_qps=60))
    assert told.startswith("Deploy teacher-fp32 on cpu")
    assert "; from 26.7 queries/s on student-fp32 on cpu is cheaper, $0.0775 per million" in told


def test_a_baseline_without_a_cost_is_told(tmp_path):
    run = made.write_run(tmp_path)
    lost = made.capacity("teacher-fp32", "cpu", (80.0,), max_qps_at_slo=None, reason="none held: 1/s")
    made.write(lost, run / "loads" / "teacher-fp32.cpu.capacity.json")
    assert "teacher-fp32 on cpu has no cost to hold it against" in headline(
        run, traffic=Traffic(mean_qps=300, peak_qps=900)
    )


def test_nothing_valid_gives_no_recommendation(tmp_path):
    run = made.write_run(tmp_path)
    for name in made.RATES:
        lost = made.capacity(name, "cpu", (80.0,), max_qps_at_slo=None, reason="none held: 1/s")
        made.write(lost, run / "loads" / f"{name}.cpu.capacity.json")
    assert headline(run) == "Nothing can be recommended: no row is VALID, accurate enough and within the budget."


def test_the_chart_tells_unknown_from_never(tmp_path):
    run = made.write_run(tmp_path)
    made.write_row(run / "loads", "student-fp32", "cpu", (60.0, 62.0, 58.0))
    evidence = gather(run)
    report = assess(ReportConfig(), evidence)
    assert "pays back after: student-fp32 never, student-int8 38,000" in drawn(report, evidence).caption
    lost = made.capacity("teacher-fp32", "cpu", (80.0,), max_qps_at_slo=None, reason="none held: 1/s")
    made.write(lost, run / "loads" / "teacher-fp32.cpu.capacity.json")
    evidence = gather(run)
    report = assess(ReportConfig(), evidence)
    assert "teacher-fp32 unknown" in drawn(report, evidence).caption


def drawn(report, evidence):
    return next(figure for figure in draw(report, evidence) if figure.name == "cumulative-cost")
