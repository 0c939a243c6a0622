"""INT8 with calibrated scales: nothing is measured at run time, so nothing depends on batch-mates.

The padded layout takes the portable QDQ form, which ONNX Runtime fuses into integer products when it loads the graph.
In the packed layout it would first make a Gemm of each product and its bias, which it then cannot fuse: there the
fused operator is written out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from quantize.calibration import Range
from quantize.editor import CONTRIB, Editor
from quantize.products import Group, product_groups
from quantize.rowwise import INT8_MAX, UINT8_MAX, quantize_columns


def quantize_static(
    model: onnx.ModelProto,
    ranges: Sequence[Range],
    *,
    flat: bool,
    weight_max: int = INT8_MAX,
    keep: frozenset[int] = frozenset(),
) -> onnx.ModelProto:
    """Return a copy of an FP32 model with its products by constant matrices computed in INT8 at calibrated scales.

    Args:
        model: FP32.
        ranges: calibrated, one for each product group.
        flat: it is the packed layout.
        weight_max: largest quantized weight; 63 on a CPU whose INT8 kernels add pairs in 16 bits (no VNNI).
        keep: places of the product groups that stay FP32.
    """
    editor = Editor(model)
    groups = product_groups(editor)
    assert len(groups) == len(ranges), "calibrated on another model"
    for place, (group, seen) in enumerate(zip(groups, ranges, strict=True)):
        if place not in keep:
            _rewrite(editor, group, seen, weight_max, flat=flat)
    return editor.finish()


def _rewrite(editor: Editor, group: Group, seen: Range, weight_max: int, *, flat: bool) -> None:
    low, high = min(0.0, seen.low), max(0.0, seen.high)
    step = (high - low) / UINT8_MAX or 1.0
    prefix = f"{group.source}/static"
    scale = editor.tensor(f"{prefix}/scale", np.float32(step))
    zero = editor.tensor(f"{prefix}/zero", np.uint8(round(-low / step)))
    rounded = editor.add("QuantizeLinear", [group.source, scale, zero], f"{prefix}/uint8")
    for node in group.nodes:
        matrix = editor.constant(node.input[1])
        assert matrix is not None
        quantized, scales = quantize_columns(matrix, weight_max)
        weight = editor.tensor(f"{node.name}/weight_int8", quantized)
        column = editor.tensor(f"{node.name}/weight_scale", scales)
        if flat:
            editor.remove(node)
            inputs = [rounded, weight, scale, column, zero]
            editor.add("MatMulIntegerToFloat", inputs, node.output[0], domain=CONTRIB)
            continue
        zeros = editor.tensor(f"{node.name}/weight_zero", np.zeros(len(scales), dtype=np.int8))
        editor.set_input(node, 0, editor.add("DequantizeLinear", [rounded, scale, zero], f"{prefix}/float"))
        dequantized = f"{node.name}/dequantized"
        editor.set_input(node, 1, editor.add("DequantizeLinear", [weight, column, zeros], dequantized, axis=1))
