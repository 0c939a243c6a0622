"""What was tried is counted once, by its own meter; repeated trainings give the cost an interval; any two pay back."""

import pytest

from report.build import assess
from report.config import ReportConfig
from report.evidence import gather
from testbed.errors import UserError
from testbed.records import BundleManifest, load_as
from testbed.records.quantization import QuantizationSearch
from tests import records_for_report as made

BOX_HOUR_USD = 0.08925  # the reference's two cores, which training had


def assessed(run, **config):
    return assess(ReportConfig(**config), gather(run))


def row_of(report, variant):
    return next(row for row in report.serving if row.variant == variant)


def trial(folder, stage, wall_s, *, letter, **changes):
    run = made.training_run(stage, wall_s, checkpoint={"model.safetensors": letter * 64}, **changes)
    made.write(run, folder / stage / "record.json")
    return folder


def test_earlier_trainings_are_metered_and_belong_to_the_models_that_needed_them(tmp_path):
    run = made.write_run(tmp_path / "run")
    teacher = trial(tmp_path / "lr", "teacher", 100.0, letter="b", config={"lr": 1})
    student = trial(tmp_path / "layers", "student", 50.0, letter="c", config={"lr": 1})
    trial(student, "teacher", 240.0, letter="a")  # the final teacher once more: paid for already
    report = assessed(run, trials=(teacher, student))
    assert report.training["trials"].cost_usd == pytest.approx(150 / 3600 * BOX_HOUR_USD)
    assert row_of(report, "teacher-fp32").one_time.parts_usd["trials"] == pytest.approx(100 / 3600 * BOX_HOUR_USD)
    assert row_of(report, "student-int8").one_time.parts_usd["trials"] == pytest.approx(150 / 3600 * BOX_HOUR_USD)


def test_a_folder_of_trials_without_records_is_refused(tmp_path):
    run = made.write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"report\.trials: .*nothing holds no teacher"):
        assessed(run, trials=(tmp_path / "nothing",))


def test_other_seeds_give_the_cost_of_training_an_interval_and_one_run_gives_none(tmp_path):
    run = made.write_run(tmp_path / "run")
    alone = assessed(run).training["teacher"]
    assert alone.cost_interval is None
    assert "one training" in alone.cost_interval_reason
    seeds = [trial(tmp_path / f"s{n}", "teacher", 230.0 + 10 * n, letter=str(n), seed=n) for n in (1, 2, 3)]
    other = trial(tmp_path / "other", "teacher", 999.0, letter="d", seed=9, config={"lr": 1})
    bounds = assessed(run, trials=(*seeds, other)).training["teacher"].cost_interval
    # 240, 240, 250, 260: 247.5 ± t(0.975, 3) · 9.574 / 2; the run with other settings is no repeat.
    low, high = (seconds / 3600 * BOX_HOUR_USD for seconds in (232.27, 262.73))
    assert (bounds.low, bounds.high) == pytest.approx((low, high), rel=1e-4)


def test_the_search_is_told_apart_from_the_making_and_counted_once(tmp_path):
    run = made.write_run(tmp_path)
    manifest = load_as(BundleManifest, run / "bundle" / "manifest.json")
    before = assessed(run).training["quantize"]
    searched = made.variant("student-int8").model_copy(update={"name": "student-int8-auto", "usage": made.usage(32.0)})
    made.write(
        manifest.model_copy(update={"variants": (*manifest.variants, searched)}), run / "bundle" / "manifest.json"
    )
    made.write(
        QuantizationSearch(
            **made.shared(), model="student", num_groups=3, sensitivities={}, trials=(), chosen=None, reason="",
            usage=made.usage(30.0),
        ),
        run / "bundle" / "search.student.json",
    )  # fmt: skip
    made.write(made.load_run("student-int8", "cpu", 100.0, 0.02, variant="student-int8-auto"), run / "loads" / "a.json")
    report = assessed(run)
    parts = row_of(report, "student-int8-auto").one_time.parts_usd
    assert parts["trials"] == pytest.approx(30 / 3600 * BOX_HOUR_USD)
    assert parts["export student-int8-auto"] == pytest.approx(2 / 3600 * BOX_HOUR_USD)
    assert "trials" not in row_of(report, "student-int8").one_time.parts_usd
    assert report.training["quantize"].wall_s == pytest.approx(before.wall_s - 30)
    assert report.training["trials"].wall_s == pytest.approx(30)


def test_any_two_variants_of_a_profile_pay_back_or_say_never(tmp_path):
    report = assessed(made.write_run(tmp_path, profiles=("cpu", "edge")))
    found = {(c.profile, c.variant, c.against): c for c in report.payback_between}
    assert len(found) == 2 * 3 * 2
    for back in report.payback:
        assert found[back.profile, back.variant, back.against] == back
    assert found["cpu", "teacher-fp32", "student-int8"].reason.startswith("never")
    quantized = found["cpu", "student-int8", "student-fp32"]
    assert quantized.queries == pytest.approx(20 * 2 / (1 / 160 - 1 / 400))
    assert quantized.interval.low < quantized.queries < quantized.interval.high
