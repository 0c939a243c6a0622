"""FP16, with the operators that overflow found by bisection and left in FP32.

ONNX Runtime's CPU provider computes most FP16 operators in FP32 and leaves the casts between them out, so a model that
overflows on a GPU may look sound there. ``watched`` makes every FP16 value an output: then it must be rounded to FP16,
and an overflow shows as infinity on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from quantize.editor import Editor
from quantize.quiet import quiet

# A transformer has few kinds of operator that overflow (softmax with a mask, LayerNormalization, Pow); more means
# that something else is wrong.
MOST_BLOCKED = 8
Faulty = Callable[[onnx.ModelProto], bool]


def to_float16(
    model: onnx.ModelProto, *, blocked: frozenset[str] = frozenset(), blocked_nodes: frozenset[str] = frozenset()
) -> onnx.ModelProto:
    """Return a copy of an FP32 model in FP16 whose inputs and outputs keep their types.

    Constants beyond FP16's range, such as a mask of −3.4e38, are clamped to it.

    Args:
        model: after fusion; an unfused export does not load in FP16.
        blocked: kinds of operator that stay FP32.
        blocked_nodes: names of nodes that stay FP32.
    """
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    with quiet():
        converted: onnx.ModelProto = convert_float_to_float16(
            copy,
            keep_io_types=True,
            op_block_list=[*DEFAULT_OP_BLOCK_LIST, *sorted(blocked)],
            node_block_list=sorted(blocked_nodes),
        )
    return _without_round_trips(converted)


def watched(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of an FP16 model whose outputs are those of all its nodes, the model's own first."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {entry.name for entry in copy.graph.output}
    names = [name for node in copy.graph.node for name in node.output if name and name not in known]
    copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    return copy


def overflows(values: Iterable[NDArray[Any]]) -> bool:
    """Return whether an FP16 array holds NaN or +infinity; −infinity is what masks are made of."""
    halves = (value for value in values if value.dtype == np.float16)
    return any(bool(np.isnan(half).any() or np.isposinf(half).any()) for half in halves)


def _without_round_trips(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let FP32 operators that follow each other pass FP32 values on: the converter casts to FP16 and back between."""
    editor = Editor(model)
    for back in editor.nodes("Cast"):
        there = editor.producer(back.input[0])
        if there is None or there.op_type != "Cast" or there.attribute[0].i != TensorProto.FLOAT16:
            continue
        if back.attribute[0].i == TensorProto.FLOAT:
            editor.set_input(back, 0, there.input[0])
    return editor.finish()


def find_blocked(model: onnx.ModelProto, faulty: Faulty) -> frozenset[str] | None:
    """Return the kinds of operator that must stay FP32 so that the FP16 model is not ``faulty``.

    While the model is faulty, the first node is sought whose conversion makes it so: with the nodes before a point in
    FP16 and the rest in FP32, the point is halved down to one node, and its kind is blocked everywhere.

    Args:
        model: FP32, after fusion, its nodes in order.
        faulty: whether an FP16 model's answers are not finite or too far off.

    Returns:
        The kinds, empty where none needs to stay; None where no list mends it.
    """
    blocked: frozenset[str] = frozenset()
    while faulty(to_float16(model, blocked=blocked)):
        culprit = _first_culprit(model, faulty, blocked)
        if culprit is None or culprit in blocked or len(blocked) == MOST_BLOCKED:
            return None
        blocked |= {culprit}
    return blocked


def _first_culprit(model: onnx.ModelProto, faulty: Faulty, blocked: frozenset[str]) -> str | None:
    nodes = [node for node in model.graph.node if node.op_type not in blocked]

    def fails(num_converted: int) -> bool:
        rest = frozenset(node.name for node in nodes[num_converted:])
        return faulty(to_float16(model, blocked=blocked, blocked_nodes=rest))

    if fails(0):  # with every node in FP32 it is the weights, or something that no block list can mend
        return None
    good, bad = 0, len(nodes)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return str(nodes[bad - 1].op_type)
