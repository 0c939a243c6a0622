"""The methods: an FP32 graph in, the same graph in another precision out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import onnx

from quantize.graph import load_graph
from quantize.rowwise import INT8_MAX, quantize_rowwise

# With one of these, an x86 CPU adds products of bytes in 32 bits; without, pairs are added in 16 bits and saturate.
WIDE_SUMS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})
NARROW_WEIGHT_MAX = 63
DYNAMIC_OPERATORS = ("MatMul", "Gemm")


class Made(NamedTuple):
    """A graph and how it was made, in words for the manifest."""

    model: onnx.ModelProto
    method: str


def sums_saturate(flags: frozenset[str]) -> bool:
    """Return whether INT8 products saturate on a CPU with these flags, so that weights must spare a bit.

    True on x86 without VNNI (onnxruntime#6004); Arm's kernels add in 32 bits.
    """
    return "avx2" in flags and not flags & WIDE_SUMS


def make(method: str, fused: onnx.ModelProto, *, flat: bool, flags: frozenset[str]) -> Made:
    """Return the FP32 graph in the precision of ``method``.

    Args:
        method: a key of ``quantize.config.METHODS``.
        fused: FP32, after fusion; stays as it is.
        flat: it is the packed layout.
        flags: of the CPU that it is made for.
    """
    return _METHODS[method](fused, flat, flags)


def _fp32(fused: onnx.ModelProto, flat: bool, flags: frozenset[str]) -> Made:  # noqa: ARG001 - one signature
    return Made(fused, "export, fused")


def _fp16(fused: onnx.ModelProto, flat: bool, flags: frozenset[str]) -> Made:  # noqa: ARG001 - one signature
    from onnxruntime.transformers.float16 import convert_float_to_float16

    copy = onnx.ModelProto()
    copy.CopyFrom(fused)
    with _quiet():
        return Made(convert_float_to_float16(copy, keep_io_types=True), "fp16 after fusion")


def _int8_rowwise(fused: onnx.ModelProto, flat: bool, flags: frozenset[str]) -> Made:
    narrow = sums_saturate(flags)
    model = quantize_rowwise(fused, flat=flat, weight_max=NARROW_WEIGHT_MAX if narrow else INT8_MAX)
    return Made(model, "row-wise dynamic int8, weights per channel" + (", 7 bits" if narrow else ""))


def _int8_dynamic(fused: onnx.ModelProto, flat: bool, flags: frozenset[str]) -> Made:  # noqa: ARG001 - one signature
    from onnxruntime.quantization import QuantType, quantize_dynamic

    narrow = sums_saturate(flags)
    with _quiet(), TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            fused,
            path,
            op_types_to_quantize=list(DYNAMIC_OPERATORS),
            per_channel=True,
            reduce_range=narrow,
            weight_type=QuantType.QInt8,
            # The fused operators have no shape inference: without the type, "Unable to find data type".
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "MatMulConstBOnly": True},
        )
        words = "dynamic int8 per channel, one activation scale a batch" + (", reduce_range" if narrow else "")
        return Made(load_graph(path), words)


_METHODS: dict[str, Callable[[onnx.ModelProto, bool, frozenset[str]], Made]] = {
    "fp32": _fp32,
    "fp16": _fp16,
    "int8": _int8_rowwise,
    "int8-dynamic": _int8_dynamic,
}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep ONNX Runtime's advice to pre-process (the graph is fused already) out of the progress lines."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous)
