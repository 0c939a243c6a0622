"""INT8 with one activation scale a row (a token), so that no answer depends on its batch-mates.

What libraries make of "dynamic INT8" takes one scale for a whole batch: the largest activation of any text in it
decides how finely every other text is rounded. Here each product ``x W`` of the graph becomes

    s = max |x| of the row / 127            (Abs, ReduceMax, Mul)
    q = round(x / s) + 128                  (QuantizeLinear, uint8)
    y = s · ((q − 128) Wq) · w              (MatMulIntegerToFloat with w, one scale a column of W; Mul)

with ``Wq`` symmetric int8 per column. Inputs that several products share (queries, keys, values) are quantized once.
Behind an activation that never goes below ``−c`` (Gelu, Relu) most of the 8 bits go to what is there: the zero point
is ``GELU_ZERO`` (0 for Relu) instead of 128, and the scale is large enough for both the row's largest value and ``c``.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from quantize.editor import CONTRIB, Editor
from quantize.products import product_groups

UINT8_MIDDLE, INT8_MAX, UINT8_MAX = 128, 127, 255
# A largest weight below this would give a scale that float32 cannot divide by.
NOTHING = 1e-30
# Gelu's minimum is −0.16997 at −0.7518; rounding, and the tanh form, go a little below. 24 steps for it cost rows whose
# largest value is above 1.6 a tenth of their steps and no pass over the row.
GELU_LOWEST, GELU_ZERO = 0.171, 24


def quantize_rowwise(
    model: onnx.ModelProto, *, flat: bool, weight_max: int = INT8_MAX, keep: frozenset[int] = frozenset()
) -> onnx.ModelProto:
    """Return a copy of an FP32 model with its products by constant matrices computed in INT8, scaled by rows.

    Args:
        model: FP32, fused or not.
        flat: the products' left factors have two dimensions (the packed layout), else more.
        weight_max: largest quantized weight; 63 on a CPU whose INT8 kernels add pairs in 16 bits (no VNNI).
        keep: places of the product groups that stay FP32.
    """
    editor = Editor(model)
    for place, group in enumerate(product_groups(editor)):
        if place not in keep:
            rows = _Rows(editor, group.source, flat=flat)
            for node in group.nodes:
                rows.multiply(node, weight_max)
    return editor.finish()


def quantize_columns(weight: NDArray[np.float32], weight_max: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a matrix as symmetric int8 and one float32 scale a column; a column of nothing gets the scale 1."""
    largest = np.abs(weight).max(axis=0)
    scale = np.where(largest > NOTHING, largest / weight_max, 1.0).astype(np.float32)
    return np.clip(np.round(weight / scale), -weight_max, weight_max).astype(np.int8), scale


class _Rows:
    """One value of the graph, quantized once by rows for all the products that read it."""

    def __init__(self, editor: Editor, source: str, *, flat: bool) -> None:
        producer = editor.producer(source)
        self._activation = "" if producer is None else producer.op_type.removeprefix("Bias").removeprefix("Fast")
        self._zero = np.uint8({"Gelu": GELU_ZERO, "Relu": 0}.get(self._activation, UINT8_MIDDLE))
        self._editor = editor
        self._prefix = f"{source}/rows"
        self._scale = ""
        self._quantized = self._quantize_flat(source) if flat else self._quantize(source)

    def multiply(self, node: onnx.NodeProto, weight_max: int) -> None:
        """Replace one product of this value by a constant matrix."""
        editor, out = self._editor, node.output[0]
        matrix = editor.constant(node.input[1])
        assert matrix is not None
        weight, scale = quantize_columns(matrix, weight_max)
        inputs = [
            self._quantized,
            editor.tensor(f"{node.name}/weight_int8", weight),
            editor.tensor("one", np.float32(1)),
            editor.tensor(f"{node.name}/weight_scale", scale),
            editor.tensor(f"zero_point_{self._zero}", self._zero),
        ]
        editor.remove(node)
        product = editor.add("MatMulIntegerToFloat", inputs, f"{out}/unscaled", domain=CONTRIB)
        editor.add("Mul", [product, self._scale], out)

    def _row_scale(self, source: str, *, keepdims: int) -> str:
        """Add the nodes up to each row's scale."""
        editor, prefix = self._editor, self._prefix
        signed = self._zero == UINT8_MIDDLE
        size = editor.add("Abs", [source], f"{prefix}/abs") if signed else source
        last = editor.tensor("last_axis", np.array([-1]))
        largest = editor.add("ReduceMax", [size, last], f"{prefix}/max", keepdims=keepdims)
        steps = INT8_MAX if signed else UINT8_MAX - int(self._zero)
        scale = [largest, editor.tensor(f"one_over_{steps}", np.float32(1 / steps))]
        if self._activation != "Gelu":
            return editor.add("Mul", scale, f"{prefix}/scale")
        fitting = editor.add("Mul", scale, f"{prefix}/fitting")
        least = editor.tensor("gelu_step", np.float32(GELU_LOWEST / GELU_ZERO))
        return editor.add("Max", [fitting, least], f"{prefix}/scale")

    def _quantize_flat(self, source: str) -> str:
        """Of rows [tokens, width] or [texts, width]: QuantizeLinear itself takes one scale a row."""
        editor, prefix = self._editor, self._prefix
        scale = self._row_scale(source, keepdims=0)
        count = editor.add("Shape", [scale], f"{prefix}/count")
        zero = numpy_helper.from_array(np.array([self._zero]))
        zeros = editor.add("ConstantOfShape", [count], f"{prefix}/zeros", value=zero)
        self._scale = editor.add("Unsqueeze", [scale, editor.tensor("last_axis", np.array([-1]))], f"{prefix}/column")
        return editor.add("QuantizeLinear", [source, scale, zeros], f"{prefix}/uint8", axis=0)

    def _quantize(self, source: str) -> str:
        """Of rows with any dimensions before the last: divided by their scale, then rounded at scale 1."""
        editor, prefix = self._editor, self._prefix
        self._scale = self._row_scale(source, keepdims=1)
        divided = editor.add("Div", [source, self._scale], f"{prefix}/divided")
        inputs = [divided, editor.tensor("one", np.float32(1)), editor.tensor(f"zero_point_{self._zero}", self._zero)]
        return editor.add("QuantizeLinear", inputs, f"{prefix}/uint8")
