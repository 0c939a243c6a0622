"""Where training and the variants stand under the roof, against figures by hand."""

import pytest

from report.evidence import gather
from report.roofline import Ceilings, roof_points
from testbed.records import BundleManifest, Interval, load_as
from testbed.records.bundle import Speed
from testbed.records.training import RooflinePoint, TrainingRoofline
from tests import records_for_report as made

FLOPS_PER_TOKEN, TOKENS = 1.1e7, 89 / 6  # the invented student's, and the mean of the manifest's lengths
SPEED = Speed(
    texts_per_s=100.0,
    ratio_to_fp32=1.0,
    ratio_interval=Interval(low=1.0, high=1.0, method="bootstrap"),
    packed_texts_per_s=200.0,
)


def points_of(tmp_path, *, ceilings, names=("student-fp32", "student-int8")):
    run = made.write_run(tmp_path)
    path = run / "bundle" / "manifest.json"
    manifest = load_as(BundleManifest, path)
    fast = tuple(v.model_copy(update={"speed": SPEED}) if v.name in names else v for v in manifest.variants)
    made.write(manifest.model_copy(update={"variants": fast}), path)
    return {(point.name, point.where): point for point in roof_points(gather(run), ceilings)}


def test_weights_and_activations_are_counted(tmp_path):
    points = points_of(tmp_path, ceilings=Ceilings(1e11, 1e10))
    flops = TOKENS * FLOPS_PER_TOKEN
    activations = TOKENS * (20 + 16) * 384 * 3 * 4  # hidden size 384, three layers, four bytes
    alone = points["student-fp32", "one text"]
    assert alone.flops_per_byte == pytest.approx(flops / (FLOPS_PER_TOKEN / 2 * 4 + activations))
    assert alone.flops_per_s == pytest.approx(100 * flops)
    packed = points["student-fp32", "8 packed"]
    assert packed.flops_per_byte == pytest.approx(8 * flops / (FLOPS_PER_TOKEN / 2 * 4 + 8 * activations))
    assert packed.flops_per_s == pytest.approx(200 * flops)
    assert points["student-int8", "one text"].flops_per_byte > alone.flops_per_byte  # a quarter of the weights' bytes
    assert ("teacher-fp32", "one text") not in points  # its speed was not measured


def test_what_the_packed_layout_leaves_out_is_not_counted(tmp_path):
    run = made.write_run(tmp_path)
    path = run / "bundle" / "manifest.json"
    manifest = load_as(BundleManifest, path)
    fewer = {"speed": SPEED, "packed_flops_per_token": 0.75 * FLOPS_PER_TOKEN}
    made.write(
        manifest.model_copy(update={"variants": tuple(v.model_copy(update=fewer) for v in manifest.variants)}), path
    )
    points = {(point.name, point.where): point for point in roof_points(gather(run), Ceilings(1e11, 1e10))}
    flops = TOKENS * FLOPS_PER_TOKEN
    activations = TOKENS * (20 + 16) * 384 * 3 * 4
    assert points["student-fp32", "one text"].flops_per_s == pytest.approx(100 * flops)
    packed = points["student-fp32", "8 packed"]
    assert packed.flops_per_s == pytest.approx(200 * 0.75 * flops)
    moved = FLOPS_PER_TOKEN / 2 * 4 + 0.75 * 8 * activations
    assert packed.flops_per_byte == pytest.approx(0.75 * 8 * flops / moved)


def test_the_nearer_ceiling_is_the_verdict(tmp_path):
    memory = points_of(tmp_path / "a", ceilings=Ceilings(1e12, 1e10))["student-fp32", "one text"]
    compute = points_of(tmp_path / "b", ceilings=Ceilings(1e10, 1e10))["student-fp32", "one text"]
    unknown = points_of(tmp_path / "c", ceilings=Ceilings(None, None))["student-fp32", "one text"]
    assert (memory.bound, compute.bound, unknown.bound) == ("memory", "compute", None)
    assert "not known" in unknown.reason


def test_waiting_for_data_bounds_a_training_and_tokenizing_a_lone_query(tmp_path):
    run = made.write_run(tmp_path)
    split = made.training_run("student", 170.0).step_split.model_copy(update={"data_wait_s": 9.0, "wall_s": 30.0})
    made.write(made.training_run("student", 170.0, step_split=split), run / "student" / "record.json")
    manifest = load_as(BundleManifest, run / "bundle" / "manifest.json")
    fast = tuple(v.model_copy(update={"speed": SPEED}) for v in manifest.variants)
    made.write(manifest.model_copy(update={"variants": fast}), run / "bundle" / "manifest.json")
    slow = made.load_run(
        "student-int8", "cpu", 300.0, 0.01, scenario="SingleStream", purpose="single", target_qps=None,
        timings={"tokenize": 0.001, "compute": 0.002},
    )  # fmt: skip
    made.write(slow, run / "loads" / "student-int8.cpu.single.json")
    points = {(point.name, point.where): point for point in roof_points(gather(run), Ceilings(1e11, 1e10))}
    assert points["training the student", "training"].bound == "data"
    assert points["student-int8", "one text"].bound == "data"
    assert points["student-fp32", "one text"].bound == "memory"
    assert points["training the teacher", "training"].bound in {"compute", "memory"}


def test_what_the_training_itself_measured_is_taken_as_it_is(tmp_path):
    run = made.write_run(tmp_path)
    step = RooflinePoint(
        part="step", flops=1e12, moved_bytes=1e11, seconds=20.0, flops_per_s=5e10, bytes_per_s=5e9, flops_per_byte=10.0,
        share_of_gemm=0.5, share_of_triad=0.4, bound="compute",
    )  # fmt: skip
    measured = TrainingRoofline(
        gemm_flops_per_s=1e11, triad_bytes_per_s=1e10, points=(step,), bound="compute", reason="by its own meter"
    )
    made.write(made.training_run("teacher", 240.0, roofline=measured), run / "teacher" / "record.json")
    point = roof_points(gather(run), Ceilings(None, None))[0]
    assert (point.flops_per_byte, point.bound, point.reason) == (10.0, "compute", "by its own meter")
