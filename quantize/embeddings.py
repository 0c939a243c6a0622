"""The word embeddings in INT8 with a scale a row: most of a small classifier's bytes, and none of its time."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from quantize.editor import Editor
from quantize.rowwise import INT8_MAX, quantize_columns

# Tables with fewer rows (positions, types) weigh little.
FEWEST_ROWS = 1024


def quantize_embeddings(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every large table that ``Gather`` reads rows of is int8 with one float32 scale a row.

    A row's values are off by at most 1/254 of its largest; nothing depends on batch-mates.
    """
    editor = Editor(model)
    for node in editor.nodes("Gather"):
        table = editor.constant(node.input[0])
        if table is None or table.ndim != 2 or len(table) < FEWEST_ROWS or table.dtype != np.float32:  # noqa: PLR2004 - a matrix
            continue
        rows, scale = quantize_columns(table.T, INT8_MAX)
        name, ids, out = node.input[0], node.input[1], node.output[0]
        editor.remove(node)
        picked = editor.add("Gather", [editor.tensor(f"{name}/int8", rows.T), ids], f"{out}/int8")
        floats = editor.add("Cast", [picked], f"{out}/float", to=TensorProto.FLOAT)
        scales = editor.add("Gather", [editor.tensor(f"{name}/scale", scale[:, None]), ids], f"{out}/scale")
        editor.add("Mul", [floats, scales], out)
    return editor.finish()
