"""What must hold for any matrix, any batch and any mates."""

import functools

import numpy as np
import onnx
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from quantize.rowwise import INT8_MAX, quantize_columns, quantize_rowwise
from quantize.session import Logits, Rows, run_in_batches

WIDTH, OUT = 16, 8
FINITE = st.floats(-1e4, 1e4, width=32)
ROW = hnp.arrays(np.float32, WIDTH, elements=FINITE)


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=12), elements=FINITE))
def test_a_weight_is_off_by_half_a_step_at_most(matrix: NDArray[np.float32]) -> None:
    weight, scale = quantize_columns(matrix, INT8_MAX)
    assert np.abs(weight.astype(int)).max() <= INT8_MAX
    # float32 rounding of the scale and of the quotient comes on top.
    assert (np.abs(weight * scale - matrix) <= scale * 0.5001 + 1e-30).all()


class FirstIds:
    """A runner whose answer is the row's own first id: order and pairing show."""

    def run(self, rows: Rows) -> Logits:
        return np.array([[row[0]] for row in rows], dtype=np.float32)


@given(st.integers(1, 40), st.integers(1, 9), st.randoms())
def test_batches_in_any_order_answer_in_the_rows_order(count: int, size: int, draw: object) -> None:
    rows = [[index, 99] for index in range(count)]
    order = list(range(count))
    draw.shuffle(order)  # type: ignore[attr-defined]
    assert run_in_batches(FirstIds(), rows, size=size, order=order)[:, 0].tolist() == list(range(count))


@functools.cache
def session() -> onnxruntime.InferenceSession:
    weight = np.random.default_rng(0).normal(size=(WIDTH, OUT)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"], name="product")],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["tokens", WIDTH]),
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["tokens"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["tokens", OUT])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert isinstance(model, onnx.ModelProto)
    return onnxruntime.InferenceSession(quantize_rowwise(model, flat=True).SerializeToString())


@given(ROW, st.lists(ROW, max_size=9), st.integers(0, 9))
def test_no_mates_change_a_row(row: NDArray[np.float32], mates: list[NDArray[np.float32]], place: int) -> None:
    def answer(rows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        x = np.stack(rows)
        result: NDArray[np.float32] = session().run(None, {"x": x, "input_ids": np.zeros(len(x), dtype=np.int64)})[0]
        return result

    crowd = [*mates[:place], row, *mates[place:]]
    alone = answer([row])[0]
    np.testing.assert_allclose(answer(crowd)[min(place, len(mates))], alone, rtol=1e-5, atol=1e-5)
