"""Two runs side by side."""

import pytest

from report.build import assess
from report.compare import compare_runs, render_comparison
from report.config import ReportConfig
from report.evidence import gather
from testbed.errors import UserError
from tests import records_for_report as made


def reported(folder, **rates):
    run = made.write_run(folder)
    for name, repeats in rates.items():
        made.write_row(run / "loads", name.replace("_", "-"), "cpu", repeats)
    made.write(assess(ReportConfig(), gather(run)), run / "report" / "report.json")
    return run


def change_of(changes, subject, figure):
    return next(change for change in changes if (change.subject, change.figure) == (subject, figure))


def test_what_is_outside_the_intervals_is_significant(tmp_path):
    before = reported(tmp_path / "before")
    after = reported(tmp_path / "after", student_int8=(500.0, 495.0, 505.0))
    changes = compare_runs(before, after)
    faster = change_of(changes, "student-int8 on cpu", "queries/s at SLO")
    assert faster.relative == pytest.approx(0.25)
    assert faster.significant is True
    same = change_of(changes, "teacher-fp32 on cpu", "queries/s at SLO")
    assert (same.relative, same.significant) == (0, False)
    making = change_of(changes, "making: teacher", "usd")
    assert (making.significant, making.verdict) == (None, "the same")
    assert change_of(changes, "student-int8 on cpu", "J per query").verdict == "no interval"


def test_a_row_of_one_run_only_is_shown(tmp_path):
    before, after = reported(tmp_path / "before"), reported(tmp_path / "after")
    for path in (after / "loads").glob("student-int8.*"):
        path.unlink()
    made.write(assess(ReportConfig(), gather(after)), after / "report" / "report.json")
    gone = change_of(compare_runs(before, after), "student-int8 on cpu", "queries/s at SLO")
    assert gone.after is None
    assert gone.verdict == "only in one run"


def test_rendering_warns_of_another_machine(tmp_path):
    before, after = reported(tmp_path / "before"), reported(tmp_path / "after")
    report = assess(ReportConfig(), gather(after))
    elsewhere = report.machine.model_copy(update={"cpu_model": "Other CPU"})
    made.write(report.model_copy(update={"machine": elsewhere}), after / "report" / "report.json")
    text = render_comparison(before, after)
    assert "not comparable" in text
    assert "| student-int8 on cpu | queries/s at SLO | 400 | 400 | +0.0% | within the intervals |" in text


def test_a_run_without_a_report_is_refused(tmp_path):
    before = reported(tmp_path / "before")
    with pytest.raises(UserError, match="no such record"):
        compare_runs(before, tmp_path / "nothing")
