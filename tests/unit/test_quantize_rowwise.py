"""Row-wise INT8 on small graphs: right, independent of batch-mates, and careful where products saturate."""

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from quantize.precision import NARROW_WEIGHT_MAX, Setting, sums_saturate
from quantize.rowwise import quantize_columns, quantize_rowwise

WIDTH, OUT = 48, 24
DRAW = np.random.default_rng(0)
WEIGHT = DRAW.normal(size=(WIDTH, OUT)).astype(np.float32)


def product_graph(*, flat: bool, activation: str | None = None) -> onnx.ModelProto:
    """``MatMul(x, WEIGHT)``, behind an activation where named; the tokens' input is there for the flat layout."""
    nodes = [helper.make_node("MatMul", ["x" if activation is None else "a", "w"], ["logits"], name="product")]
    if activation is not None:
        nodes.insert(0, helper.make_node(activation, ["x"], ["a"]))
    dims = ["tokens", WIDTH] if flat else ["batch", "length", WIDTH]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)]
    if flat:
        inputs.append(helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["tokens"]))
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*dims[:-1], OUT])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(WEIGHT, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def run(model: onnx.ModelProto, x: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {"x": x, "input_ids": np.zeros(len(x), dtype=np.int64)}
    names = {entry.name for entry in session.get_inputs()}
    result: NDArray[np.float32] = session.run(None, {name: value for name, value in feed.items() if name in names})[0]
    return result


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("activation", [None, "Relu", "Gelu"])
def test_close_to_fp32(flat: bool, activation: str | None) -> None:
    x = DRAW.normal(size=(7, WIDTH) if flat else (2, 7, WIDTH)).astype(np.float32)
    model = product_graph(flat=flat, activation=activation)
    exact, found = run(model, x), run(quantize_rowwise(model, flat=flat), x)
    # Rounding errors of about 1/250 of the largest factor, added over WIDTH products.
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()
    assert np.abs(found - exact).max() > 0, "nothing was quantized"


@pytest.mark.parametrize("flat", [True, False])
def test_a_row_does_not_see_its_mates(flat: bool) -> None:
    row = DRAW.normal(size=(1, WIDTH)).astype(np.float32)
    loud = 1000 * DRAW.normal(size=(6, WIDTH)).astype(np.float32)
    model = quantize_rowwise(product_graph(flat=flat), flat=flat)
    alone, crowd = row, np.concatenate([row, loud])
    if not flat:
        alone, crowd = alone[None], crowd[None]
    np.testing.assert_array_equal(run(model, crowd).reshape(-1, OUT)[0], run(model, alone).reshape(-1, OUT)[0])


def test_a_row_of_zeros_gives_zeros() -> None:
    x = np.zeros((3, WIDTH), dtype=np.float32)
    np.testing.assert_array_equal(run(quantize_rowwise(product_graph(flat=True), flat=True), x), np.zeros((3, OUT)))


def test_a_group_that_is_kept_stays_fp32() -> None:
    kept = quantize_rowwise(product_graph(flat=True), flat=True, keep=frozenset({0}))
    assert [node.op_type for node in kept.graph.node] == ["MatMul"]


def test_a_shared_input_is_quantized_once() -> None:
    model = product_graph(flat=True)
    second = helper.make_node("MatMul", ["x", "w"], ["other"], name="second")
    model.graph.node.append(second)
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, ["tokens", OUT]))
    operators = [node.op_type for node in quantize_rowwise(model, flat=True).graph.node]
    assert operators.count("QuantizeLinear") == 1
    assert operators.count("MatMulIntegerToFloat") == 2


def test_columns_keep_to_the_largest_weight_and_zero_columns_survive() -> None:
    matrix = np.concatenate([WEIGHT, np.zeros((WIDTH, 1), dtype=np.float32)], axis=1)
    weight, scale = quantize_columns(matrix, NARROW_WEIGHT_MAX)
    assert np.abs(weight).max() == NARROW_WEIGHT_MAX
    np.testing.assert_allclose(weight * scale, matrix, atol=float(scale[:-1].max()) / 2 + 1e-6)


@pytest.mark.parametrize(
    ("flags", "narrow"),
    [
        ({"avx2"}, True),
        ({"avx2", "avx512f", "avx512bw"}, True),
        ({"avx2", "avx_vnni"}, False),
        ({"avx2", "avx512_vnni", "amx_int8"}, False),
        ({"asimd", "asimddp"}, False),
    ],
)
def test_weights_spare_a_bit_where_pairs_are_added_in_16_bits(flags: set[str], narrow: bool) -> None:
    assert sums_saturate(frozenset(flags)) is narrow


def added_in_16_bits(factor: NDArray[np.uint8], weight: NDArray[np.int8]) -> NDArray[np.int32]:
    """What x86 computes without VNNI (vpmaddubsw): each pair of products is clipped to 16 bits before it is added."""
    products = factor.astype(np.int32)[:, :, None] * weight.astype(np.int32)[None]
    pairs = products[:, 0::2] + products[:, 1::2]
    result: NDArray[np.int32] = np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1)
    return result


@pytest.mark.parametrize(("flags", "exact"), [({"avx2"}, True), ({"avx2", "avx512_vnni"}, False)])
def test_a_saturating_model_is_mended_where_it_would_saturate(flags: set[str], exact: bool) -> None:
    loud = np.full((WIDTH, 1), 3.0, dtype=np.float32)
    factor = np.full((1, WIDTH), 255, dtype=np.uint8)
    weight, _ = quantize_columns(loud, Setting(frozenset(flags)).weight_max)
    whole = factor.astype(np.int32) @ weight.astype(np.int32)
    # With full weights the narrow arithmetic is wrong: such weights are made only for CPUs that add in 32 bits.
    assert bool((added_in_16_bits(factor, weight) == whole).all()) is exact
