"""INT8 with one activation scale a row (a token), so that no answer depends on its batch-mates.

What libraries make of "dynamic INT8" takes one scale for a whole batch: the largest activation of any text in it
decides how finely every other text is rounded. Here each product ``x W`` of the graph becomes

    s = max |x| of the row / 127            (Abs, ReduceMax, Mul)
    q = round(x / s) + 128                  (QuantizeLinear, uint8)
    y = s · ((q − 128) Wq) · w              (MatMulIntegerToFloat with w, one scale a column of W; Mul)

with ``Wq`` symmetric int8 per column. Inputs that several products share (queries, keys, values) are quantized once.
A product behind an activation that never goes below ``−c`` (Gelu, Relu) spends all 8 bits on what there is: it
quantizes ``x + c`` from zero, and ``c`` times the column sums of the dequantized weights is taken off again, in the
bias where one follows.
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
# The lowest value of each activation, negated: Gelu's minimum is −0.16997 at −0.7518; rounding may go a little below.
LOWEST = {"Gelu": 0.17, "BiasGelu": 0.17, "FastGelu": 0.171, "Relu": 0.0}


def quantize_rowwise(
    model: onnx.ModelProto, *, flat: bool, weight_max: int = INT8_MAX, keep: frozenset[int] = frozenset()
) -> onnx.ModelProto:
    """Return a copy of an FP32 model with its products by constant matrices computed in INT8, scaled by rows.

    Args:
        model: FP32, fused or not.
        flat: the products' left factors are [tokens, width] (the packed layout), else they have more dimensions.
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
        self._shift = LOWEST.get(producer.op_type) if producer is not None else None
        self._editor = editor
        self._prefix = f"{source}/rows"
        self._scale = ""
        self._quantized = self._quantize_flat(source) if flat else self._quantize(source)

    @property
    def _zero_point(self) -> np.uint8:
        return np.uint8(UINT8_MIDDLE if self._shift is None else 0)

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
            editor.tensor(f"zero_point_{self._zero_point}", self._zero_point),
        ]
        editor.remove(node)
        product = editor.add("MatMulIntegerToFloat", inputs, f"{out}/unscaled", domain=CONTRIB)
        sums = (weight.astype(np.float32) * scale).sum(axis=0) * (self._shift or 0)
        if self._shift and not self._fold_into_bias(out, sums):
            scaled = editor.add("Mul", [product, self._scale], f"{out}/shifted")
            editor.add("Sub", [scaled, editor.tensor(f"{node.name}/shift", sums)], out)
        else:
            editor.add("Mul", [product, self._scale], out)

    def _fold_into_bias(self, out: str, sums: NDArray[np.float32]) -> bool:
        """Take the shift off the bias that alone is added to ``out``; return False where there is none."""
        consumers = self._editor.consumers(out)
        if len(consumers) != 1 or consumers[0].op_type != "Add":
            return False
        (place,) = (index for index, name in enumerate(consumers[0].input) if name != out)
        bias = self._editor.constant(consumers[0].input[place])
        if bias is None:
            return False
        self._editor.set_input(consumers[0], place, self._editor.tensor(f"{out}/bias", bias - sums))
        return True

    def _largest(self, source: str, *, keepdims: int) -> tuple[str, str]:
        """Add the nodes up to each row's scale; return the (shifted) value and the scale."""
        editor, prefix = self._editor, self._prefix
        value = source
        if self._shift:
            value = editor.add("Add", [source, editor.tensor("lowest", np.float32(self._shift))], f"{prefix}/shifted")
        size = value if self._shift is not None else editor.add("Abs", [value], f"{prefix}/abs")
        last = editor.tensor("last_axis", np.array([-1]))
        largest = editor.add("ReduceMax", [size, last], f"{prefix}/max", keepdims=keepdims)
        steps = INT8_MAX if self._shift is None else UINT8_MAX
        inverse = editor.tensor(f"one_over_{steps}", np.float32(1 / steps))
        return value, editor.add("Mul", [largest, inverse], f"{prefix}/scale")

    def _quantize_flat(self, source: str) -> str:
        """Of rows [tokens, width]: QuantizeLinear itself takes one scale a row."""
        editor, prefix = self._editor, self._prefix
        value, scale = self._largest(source, keepdims=0)
        count = editor.add("Shape", ["input_ids"], "num_tokens")
        middle = numpy_helper.from_array(np.array([self._zero_point]))
        zeros = editor.add("ConstantOfShape", [count], f"zero_points_{self._zero_point}", value=middle)
        self._scale = editor.add("Unsqueeze", [scale, editor.tensor("last_axis", np.array([-1]))], f"{prefix}/column")
        return editor.add("QuantizeLinear", [value, scale, zeros], f"{prefix}/uint8", axis=0)

    def _quantize(self, source: str) -> str:
        """Of rows with any dimensions before the last: divided by their scale, then rounded at scale 1."""
        editor, prefix = self._editor, self._prefix
        value, self._scale = self._largest(source, keepdims=1)
        divided = editor.add("Div", [value, self._scale], f"{prefix}/divided")
        zero_point = editor.tensor(f"zero_point_{self._zero_point}", self._zero_point)
        return editor.add(
            "QuantizeLinear", [divided, editor.tensor("one", np.float32(1)), zero_point], f"{prefix}/uint8"
        )
