"""The other methods: FP16 with what overflows left out, calibrated INT8, weight-only, and the search over them."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quantize.build import build_bundle
from quantize.calibration import Calibration, calibrate, entropy_range
from quantize.checkpoint import Checkpoint, open_checkpoint
from quantize.config import InvarianceBound, QuantizeConfig, SearchConfig
from quantize.export import export_fp32
from quantize.float16 import find_blocked, overflows, to_float16, watched
from quantize.fuse import fuse
from quantize.graph import operator_counts, save_graph
from quantize.packed import packed_graph
from quantize.precision import Material, Setting, prepare
from quantize.products import product_groups
from quantize.search import as_fast_as_any
from quantize.session import Packed, Padded, Rows, open_session, run_in_batches
from quantize.static import quantize_static
from quantize.weights import quantize_weights
from testbed.bundle import Bundle
from testbed.errors import UserError
from testbed.records import RecordError, load_as
from testbed.records.base import Interval
from testbed.records.quantization import QuantizationSearch, Trial
from tests.tiny import LABELS


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoints: dict[str, Path]) -> Checkpoint:
    return open_checkpoint(tiny_checkpoints["student"], labels=LABELS, max_length=None)


@pytest.fixture(scope="module")
def fused(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    path = tmp_path_factory.mktemp("fused") / "fp32.onnx"
    export_fp32(checkpoint, path)
    return fuse(path, checkpoint)


@pytest.fixture(scope="module")
def rows() -> Rows:
    draw = np.random.default_rng(0)
    return [draw.integers(4, 30, size=length).tolist() for length in draw.integers(3, 30, size=24)]


def logits(model: onnx.ModelProto, rows: Rows, folder: Path, *, size: int = 1) -> np.ndarray:
    path = folder / "model.onnx"
    save_graph(model, path, external_from_bytes=2**30)
    session = open_session(path)
    names = {entry.name for entry in session.get_inputs()}
    runner = Packed(session) if "first_token" in names else Padded(session, pad_token_id=0)
    return run_in_batches(runner, rows, size=size)


def overflowing() -> onnx.ModelProto:
    """x² / 1e6 where x² is far beyond FP16: only ``Pow`` has to stay in FP32."""
    constants = {"two": np.float32(2), "scale": np.float32(1e-6), "half": np.float32(0.5)}
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["h"], name="n0"),
        helper.make_node("Pow", ["h", "two"], ["p"], name="n1"),
        helper.make_node("Mul", ["p", "scale"], ["s"], name="n2"),
        helper.make_node("Tanh", ["s"], ["y"], name="n3"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_the_operators_that_overflow_are_found_where_the_cpu_hides_them(tmp_path: Path) -> None:
    x = np.array([1000, 2000], dtype=np.float32)

    def run(model: onnx.ModelProto) -> list[np.ndarray]:
        onnx.save(model, tmp_path / "m.onnx")
        values: list[np.ndarray] = open_session(tmp_path / "m.onnx").run(None, {"x": x})
        return values

    def faulty(model: onnx.ModelProto) -> bool:
        return overflows(run(watched(model)))

    half, exact = to_float16(overflowing()), run(overflowing())[0]
    np.testing.assert_allclose(run(half)[0], exact, atol=0.01)  # the CPU provider computes in FP32 and sees nothing
    assert faulty(half)
    # The square overflows, and so does what is cast to FP16 between it and the product that makes it small again.
    blocked = find_blocked(overflowing(), faulty)
    assert blocked == {"Pow", "Mul"}
    mended = to_float16(overflowing(), blocked=blocked)
    assert not faulty(mended)
    np.testing.assert_allclose(run(mended)[0], exact, atol=0.01)


def test_no_block_list_for_what_is_wrong_anyway() -> None:
    assert find_blocked(overflowing(), lambda model: True) is None


def test_a_mask_beyond_fp16_is_clamped(fused: onnx.ModelProto, rows: Rows, tmp_path: Path) -> None:
    exact = logits(fused, rows, tmp_path, size=8)
    found = logits(to_float16(fused), rows, tmp_path, size=8)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, exact, atol=0.01)


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_static_int8_in_both_layouts(
    checkpoint: Checkpoint, fused: onnx.ModelProto, rows: Rows, tmp_path: Path, method: Calibration
) -> None:
    found = calibrate(fused, rows, pad_token_id=0, method=method)
    assert len(found.ranges) == len(product_groups(fused)) == 8
    packed = packed_graph(checkpoint)
    assert packed is not None
    exact = logits(fused, rows, tmp_path)
    for graph, flat in ((fused, False), (packed, True)):
        static = quantize_static(graph, found.ranges, flat=flat)
        alone = logits(static, rows, tmp_path)
        assert 0 < np.abs(alone - exact).max() < 0.05
        np.testing.assert_allclose(logits(static, rows, tmp_path, size=8), alone, atol=1e-3)


def test_entropy_clips_a_rare_outlier_and_not_a_tenth_of_the_values() -> None:
    body = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    rare, common = body.copy(), body.copy()
    rare[:2], common[:9000] = 40.0, 40.0
    assert entropy_range(rare).high < 20
    assert entropy_range(common).high == 40


def test_another_calibration_set_has_another_hash(fused: onnx.ModelProto, rows: Rows) -> None:
    first = calibrate(fused, rows, pad_token_id=0, method="minmax")
    assert first.sha256 == calibrate(fused, rows, pad_token_id=0, method="percentile").sha256
    assert first.sha256 != calibrate(fused, rows[1:], pad_token_id=0, method="minmax").sha256


def test_an_empty_calibration_set(fused: onnx.ModelProto) -> None:
    with pytest.raises(UserError, match="no calibration text"):
        calibrate(fused, [], pad_token_id=0, method="minmax")


@pytest.mark.parametrize("method", ["int8", "int8-static", "int8-dynamic", "int4-weights"])
def test_a_graph_without_anything_to_quantize(method: str) -> None:
    material = Material([[1]], np.zeros((1, 3), dtype=np.float32), 0)
    with pytest.raises(UserError, match="no product by a constant matrix"):
        prepare(method, overflowing(), Setting(frozenset()), material)


@pytest.mark.parametrize(("bits", "bound"), [(8, 0.005), (4, 0.1)])
def test_weight_only(fused: onnx.ModelProto, rows: Rows, tmp_path: Path, bits: int, bound: float) -> None:
    model = quantize_weights(fused, bits=bits, keep=frozenset({0}))
    counts = operator_counts(model)
    assert counts["MatMulNBits"] == 9  # of 12 products; queries, keys and values of the first layer are kept
    assert 0 < np.abs(logits(model, rows, tmp_path) - logits(fused, rows, tmp_path)).max() < bound


def test_the_search_leaves_a_record(tiny_dataset: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path) -> None:
    config = QuantizeConfig(
        variants=("student-fp32", "student-int8-auto"),
        search=SearchConfig(methods=("int8", "int8-static"), rounds=4, sensitivity_texts=16),
        accuracy_points=100,
        invariance=InvarianceBound(num_texts=32),
        speed_rounds=4,
    )
    manifest = build_bundle(
        config, name="x", dataset=tiny_dataset, checkpoints=tiny_checkpoints, folder=tmp_path / "bundle"
    )
    record = load_as(QuantizationSearch, tmp_path / "bundle" / "search.student.json")
    assert [trial.method for trial in record.trials] == ["int8", "int8-static"]
    assert all(trial.keeps_floor and trial.usage.wall_s > 0 for trial in record.trials)
    assert record.chosen in as_fast_as_any(record.trials)
    assert manifest.variant("student-int8-auto").precision == "int8"


def test_of_trials_that_speed_does_not_tell_apart_the_search_takes_the_most_accurate() -> None:
    def trial(ratio: float, *, spread: float = 0.1, keeps: bool = True) -> Trial:
        return Trial.model_construct(
            ratio_to_fp32=ratio,
            ratio_interval=Interval(low=ratio - spread, high=ratio + spread, level=0.95, method="student t"),
            keeps_floor=keeps,
        )

    assert as_fast_as_any([trial(2.0), trial(2.70), trial(2.71), trial(3.0, keeps=False)]) == [1, 2]
    assert as_fast_as_any([trial(2.0, spread=0.8), trial(2.7)]) == [0, 1]
    assert as_fast_as_any([trial(2.5), trial(2.7), trial(2.4)]) == [0, 1]  # 2.6 meets 2.6, 2.5 does not
    assert as_fast_as_any([trial(3.0, keeps=False)]) == []


def test_a_search_without_success_names_its_trials(
    tiny_dataset: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    # No paired bound over so few dev rows is above -0.0001 points: every trial breaks the floor.
    config = QuantizeConfig(
        variants=("student-fp32", "student-int8-auto"),
        search=SearchConfig(methods=("int8",), most_left_out=1, rounds=4, sensitivity_texts=8),
        accuracy_points=0.0001,
        invariance=InvarianceBound(num_texts=32),
        speed_rounds=4,
    )
    manifest = build_bundle(
        config, name="x", dataset=tiny_dataset, checkpoints=tiny_checkpoints, folder=tmp_path / "bundle"
    )
    assert [refusal.name for refusal in manifest.refused] == ["student-int8-auto"]
    record = json.loads((tmp_path / "bundle" / "search.student.json").read_text())
    assert record["chosen"] is None
    assert record["trials"][0]["kept"] == []
    sizes = [one["mean_logit_change"] for one in record["sensitivities"].get("int8", [])]
    assert sizes == sorted(sizes, reverse=True)


def test_external_data_moves_with_the_folder(
    tiny_dataset: Path, tiny_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    config = QuantizeConfig(variants=("student-fp32", "student-int8"), external_data_bytes=1, speed_rounds=4)
    manifest = build_bundle(
        config, name="x", dataset=tiny_dataset, checkpoints=tiny_checkpoints, folder=tmp_path / "bundle"
    )
    moved = (tmp_path / "bundle").rename(tmp_path / "moved")
    bundle = Bundle(moved)
    for variant in manifest.variants:
        assert {Path(name).suffix for name in variant.files} == {".onnx", ".data"}
        rows = [list(golden.input_ids) for golden in manifest.goldens_of(variant)]
        runner = Padded(open_session(bundle.model_file(variant)), pad_token_id=0)
        expected = np.array([golden.logits for golden in manifest.goldens_of(variant)])
        np.testing.assert_allclose(runner.run(rows), expected, atol=0.05)
    weights = moved / "variants" / "student-int8.onnx.data"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(RecordError, match=r"student-int8\.onnx\.data"):
        bundle.model_file(manifest.variant("student-int8"))
