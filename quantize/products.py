"""The products by a constant matrix in a graph, grouped by what they multiply: the unit of every INT8 method."""

from __future__ import annotations

from typing import NamedTuple

import onnx

from quantize.editor import Editor


class Group(NamedTuple):
    """Products that share their left factor: queries, keys and values of one layer, or one product alone.

    Both layouts of a model have the same groups in the same order, so a group is known by its place.
    """

    source: str
    nodes: tuple[onnx.NodeProto, ...]


def product_groups(model: onnx.ModelProto | Editor) -> tuple[Group, ...]:
    """Return the groups of MatMul nodes with a constant matrix, in the graph's order.

    ``Gemm`` is not among them: in these classifiers it is the head, computed once a text.
    """
    editor = model if isinstance(model, Editor) else Editor(model)
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in editor.nodes("MatMul"):
        matrix = editor.constant(node.input[1])
        if matrix is not None and matrix.ndim == 2:  # noqa: PLR2004 - a matrix
            found.setdefault(node.input[0], []).append(node)
    return tuple(Group(source, tuple(nodes)) for source, nodes in found.items())
