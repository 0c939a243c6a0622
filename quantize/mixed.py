"""INT8 with calibrated scales where LayerNormalization bounds the rows, and a scale a row everywhere else.

LayerNormalization gives every row the same norm, so one scale learnt beforehand fits all rows and costs no pass over
them; what attention and the activation give varies from row to row. Neither sees a text's batch-mates.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from quantize.calibration import Range
from quantize.editor import Editor
from quantize.products import product_groups
from quantize.rowwise import INT8_MAX, quantize_rowwise
from quantize.static import quantize_static


def quantize_mixed(
    model: onnx.ModelProto,
    ranges: Sequence[Range],
    *,
    flat: bool,
    weight_max: int = INT8_MAX,
    keep: frozenset[int] = frozenset(),
) -> onnx.ModelProto:
    """Return a copy of an FP32 model with its products by constant matrices computed in INT8.

    Args:
        model: FP32.
        ranges: calibrated, one for each product group.
        flat: it is the packed layout.
        weight_max: largest quantized weight; 63 on a CPU whose INT8 kernels add pairs in 16 bits (no VNNI).
        keep: places of the product groups that stay FP32.
    """
    later = sorted(keep | normalised_groups(model))
    rowwise = quantize_rowwise(model, flat=flat, weight_max=weight_max, keep=frozenset(later))
    # The groups that are left are those of ``later``, in order.
    return quantize_static(
        rowwise,
        [ranges[place] for place in later],
        flat=flat,
        weight_max=weight_max,
        keep=frozenset(index for index, place in enumerate(later) if place in keep),
    )


def normalised_groups(model: onnx.ModelProto) -> frozenset[int]:
    """Return the places of the groups whose left factor comes out of a LayerNormalization."""
    editor = Editor(model)
    found = set()
    for place, group in enumerate(product_groups(editor)):
        producer = editor.producer(group.source)
        if producer is not None and producer.op_type == "LayerNormalization":
            found.add(place)
    return frozenset(found)
