"""The self-audit finds what is wrong with the evidence."""

from report.build import assess
from report.config import ReportConfig
from report.evidence import gather
from testbed.records import Refusal, load
from tests import records_for_report as made
from tests.series_for_report import judges


def findings(run):
    return {finding.subject: finding for finding in assess(ReportConfig(), gather(run)).audit}


def test_sound_evidence_has_no_fault(tmp_path):
    found = findings(made.write_run(tmp_path))
    assert not [finding for finding in found.values() if finding.status == "fault"]
    assert found["prices"].status == "note"
    assert "1 threads" in found["proof, student-int8 on cpu"].text


def test_faults_come_first(tmp_path):
    run = made.write_run(tmp_path)
    for path in (run / "loads").glob("student-int8.cpu.*.json"):
        if (record := load(path)).kind == "LoadTestRun":
            made.write(record.model_copy(update={"proof": None}), path)
    report = assess(ReportConfig(), gather(run))
    assert report.audit[0].status == "fault"
    assert "did not report" in report.audit[0].text


def test_a_broken_rule_is_named_with_its_figure(tmp_path):
    run = made.write_run(tmp_path)
    broken = made.Check(name="little_law", passed=False, measured=0.31, bound="≤ 0.05", advice="look at the clock")
    made.write(
        made.load_run("teacher-fp32", "cpu", 20.0, 0.02, valid=False, checks=(broken,)), run / "loads" / "x.json"
    )
    found = findings(run)
    assert found["little_law"].status == "note"
    assert "0.31" in found["little_law"].text
    assert "1 of" in found["validity"].text


def test_another_precision_than_the_bundle_says_is_a_fault(tmp_path):
    run = made.write_run(tmp_path)
    proof = made.load_run("student-int8", "cpu", 1, 0.01).proof.model_copy(update={"precision": "fp32"})
    made.write(
        made.load_run("student-int8", "cpu", 400.0, 0.048, proof=proof), run / "loads/student-int8.cpu.confirm.json"
    )
    assert findings(run)["proof, student-int8 on cpu"].status == "fault"


def test_answers_that_depend_on_batch_mates_are_noted(tmp_path):
    run = made.write_run(tmp_path)
    variants = tuple(
        v.model_copy(update={"verification": v.verification.model_copy(update={"batch_flip_rate": 0.06})})
        for v in made.manifest().variants
    )
    made.write(made.manifest().model_copy(update={"variants": variants}), run / "bundle" / "manifest.json")
    found = findings(run)["variant student-int8"]
    assert found.status == "note"
    assert "6.0%" in found.text


def test_single_confirmations_are_noted(tmp_path):
    run = made.write_run(tmp_path)
    made.write_row(run / "loads", "student-int8", "cpu", (400.0,))
    found = findings(run)["repeats"]
    assert found.status == "note"
    assert "student-int8 on cpu" in found.text


def test_judges_that_agree_and_that_do_not(tmp_path):
    run = made.write_run(tmp_path)
    made.write(judges("student-int8", "cpu"), run / "loads" / "student-int8.cpu.judges.json")
    agreed = findings(run)["judges, student-int8 on cpu"]
    assert agreed.status == "ok"
    assert "2× at 0.8× the peak" in agreed.text
    made.write(judges("student-int8", "cpu", "LoadGen fails"), run / "loads" / "student-int8.cpu.judges.json")
    assert findings(run)["judges, student-int8 on cpu"].status == "note"


def test_a_refused_variant_is_told_with_its_reason(tmp_path):
    run = made.write_run(tmp_path)
    refused = Refusal(name="teacher-int8", reason="accuracy fell by 3 points")
    made.write(made.manifest().model_copy(update={"refused": (refused,)}), run / "bundle" / "manifest.json")
    assert "accuracy fell" in findings(run)["variant teacher-int8"].text
