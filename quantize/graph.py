"""Reading, writing and describing ONNX graphs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from testbed.errors import UserError

FUSED = frozenset(
    "Attention MultiHeadAttention QAttention Gelu FastGelu BiasGelu LayerNormalization SkipLayerNormalization "
    "EmbedLayerNormalization DynamicQuantizeMatMul MatMulIntegerToFloat MatMulNBits FusedMatMul".split()
)
# Tensors below this stay in the graph's own file: shapes and scalars must be readable without the other file.
EXTERNAL_TENSOR_BYTES = 1024


def load_graph(path: Path) -> onnx.ModelProto:
    """Read a model with its external data; raises UserError where it is missing, cut short or no ONNX file."""
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf's DecodeError, OSError, onnx's own checker
        msg = f"{path}: not a readable ONNX file ({error}); help: it may be cut short: quantize again"
        raise UserError(msg) from error
    if not model.graph.node:
        msg = f"{path}: an ONNX file without a single node; help: it may be cut short: quantize again"
        raise UserError(msg)
    return model


def save_graph(model: onnx.ModelProto, path: Path, *, external_from_bytes: int) -> tuple[Path, ...]:
    """Write a model, its weights beside it (``<name>.data``) where they are ``external_from_bytes`` or more.

    Returns:
        The files written: the graph first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if weight_bytes(model) < external_from_bytes:
        onnx.save(model, path)
        return (path,)
    beside = path.with_name(f"{path.name}.data")
    beside.unlink(missing_ok=True)  # onnx appends to a file that is there
    copy = onnx.ModelProto()
    copy.CopyFrom(model)  # onnx takes the weights out of the model that it writes
    onnx.save(
        copy,
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=beside.name,
        size_threshold=EXTERNAL_TENSOR_BYTES,
    )
    return (path, beside)


def weight_bytes(model: onnx.ModelProto) -> int:
    """Return the bytes of all initializers."""
    return sum(len(tensor.raw_data) or tensor.ByteSize() for tensor in model.graph.initializer)


def operator_counts(model: onnx.ModelProto) -> dict[str, int]:
    """Return operator name to how many nodes of it the graph has, most frequent first."""
    return dict(Counter(node.op_type for node in model.graph.node).most_common())


def fused_counts(model: onnx.ModelProto) -> dict[str, int]:
    """Return the fused operators among them."""
    return {name: count for name, count in operator_counts(model).items() if name in FUSED}
