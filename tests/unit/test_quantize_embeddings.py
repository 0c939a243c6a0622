import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from quantize.embeddings import FEWEST_ROWS, quantize_embeddings
from quantize.graph import weight_bytes

WIDTH = 16


def table_graph(num_rows: int) -> onnx.ModelProto:
    table = np.random.default_rng(0).normal(size=(num_rows, WIDTH)).astype(np.float32)
    table[3] = 0
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["rows"])],
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", "length", WIDTH])],
        [numpy_helper.from_array(table, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_rows_are_within_half_a_step_and_a_quarter_of_the_bytes() -> None:
    model = table_graph(FEWEST_ROWS)
    small = quantize_embeddings(model)
    ids = np.array([[0, 3, 5], [FEWEST_ROWS - 1, 7, 3]])
    exact, found = (
        onnxruntime.InferenceSession(one.SerializeToString()).run(None, {"input_ids": ids})[0] for one in (model, small)
    )
    step = np.abs(exact).max(axis=-1, keepdims=True) / 127
    assert (np.abs(found - exact) <= step / 2 + 1e-6).all()
    assert weight_bytes(small) < weight_bytes(model) / 3


def test_small_tables_stay() -> None:
    assert [node.op_type for node in quantize_embeddings(table_graph(8)).graph.node] == ["Gather"]
