"""The methods: an FP32 graph in, the same graph in another precision out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import onnx

from quantize.calibration import Calibrated, Calibration, calibrate
from quantize.embeddings import quantize_embeddings
from quantize.float16 import find_blocked, overflows, to_float16, watched
from quantize.graph import load_graph, save_graph
from quantize.mixed import quantize_mixed
from quantize.products import product_groups
from quantize.quiet import quiet
from quantize.rowwise import INT8_MAX, quantize_rowwise
from quantize.session import Logits, Padded, Rows, cut, open_session
from quantize.static import quantize_static
from quantize.weights import BLOCK, quantize_weights
from testbed.errors import UserError

# With one of these, an x86 CPU adds products of bytes in 32 bits; without, pairs are added in 16 bits and saturate.
WIDE_SUMS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})
NARROW_WEIGHT_MAX = 63
CALIBRATIONS: dict[str, Calibration] = {
    "int8-static": "minmax",
    "int8-static-percentile": "percentile",
    "int8-static-entropy": "entropy",
    "int8-mixed": "percentile",
}
FLOAT_METHODS = ("fp32", "fp16")
WEIGHT_BITS = {"int8-weights": 8, "int4-weights": 4}
# FP16 keeps 11 bits: logits of a sound model move by some thousandths, of an overflowing one by whole numbers.
FP16_BOUND = 0.1
FP16_TEXTS = 64
BATCH = 8


class Made(NamedTuple):
    """A graph and how it was made, in words for the manifest."""

    model: onnx.ModelProto
    method: str


@dataclass(frozen=True)
class Material:
    """What methods may learn from: training texts only, never those that verify.

    Attributes:
        rows: token ids of training texts.
        logits: of the FP32 graph for them.
        pad_token_id: of the model.
    """

    rows: Rows
    logits: Logits
    pad_token_id: int


@dataclass(frozen=True)
class Setting:
    """What holds for both layouts of one variant.

    Attributes:
        flags: of the CPU that it is made for.
        keep: places of the product groups that stay FP32.
        calibrated: the ranges of static INT8, or None.
        blocked: kinds of operator that stay FP32 in FP16.
    """

    flags: frozenset[str]
    keep: frozenset[int] = frozenset()
    calibrated: Calibrated | None = None
    blocked: frozenset[str] = frozenset()

    @property
    def narrow(self) -> bool:
        """Whether weights must spare a bit on this CPU."""
        return sums_saturate(self.flags)

    @property
    def weight_max(self) -> int:
        """The largest quantized weight."""
        return NARROW_WEIGHT_MAX if self.narrow else INT8_MAX


def sums_saturate(flags: frozenset[str]) -> bool:
    """Return whether INT8 products saturate on a CPU with these flags, so that weights must spare a bit.

    True on x86 without VNNI (onnxruntime#6004); Arm's kernels add in 32 bits.
    """
    return "avx2" in flags and not flags & WIDE_SUMS


def prepare(method: str, fused: onnx.ModelProto, setting: Setting, material: Material) -> Setting:
    """Return the setting with what a method has to learn first: ranges for static INT8, operators that overflow FP16.

    Args:
        method: a key of ``quantize.config.METHODS``.
        fused: the padded FP32 graph.
        setting: as far as it is known.
        material: to learn from.

    Raises:
        UserError: nothing that could be quantized, no calibration text, or FP16 that no block list mends.
    """
    if method not in FLOAT_METHODS and not product_groups(fused):
        msg = f"{method}: no product by a constant matrix in this graph; help: only fp32 and fp16 fit this architecture"
        raise UserError(msg)
    if method in CALIBRATIONS:
        found = calibrate(fused, material.rows, pad_token_id=material.pad_token_id, method=CALIBRATIONS[method])
        return replace(setting, calibrated=found)
    if method == "fp16":
        blocked = find_blocked(fused, lambda model: _is_faulty(model, material))
        if blocked is None:
            msg = "FP16 overflows whatever operators stay FP32; help: leave the fp16 variant out of this experiment"
            raise UserError(msg)
        return replace(setting, blocked=blocked)
    return setting


def make(method: str, fused: onnx.ModelProto, setting: Setting, *, flat: bool) -> Made:
    """Return the FP32 graph in the precision of ``method``.

    Args:
        method: a key of ``quantize.config.METHODS``.
        fused: FP32, after fusion; stays as it is.
        setting: what was prepared.
        flat: it is the packed layout.
    """
    made = _MAKERS[method](fused, setting, flat)
    if method in FLOAT_METHODS:
        return made
    model = quantize_embeddings(made.model)
    if not setting.keep:
        return Made(model, made.method)
    return Made(model, f"{made.method}; {len(setting.keep)} of {len(product_groups(fused))} product groups FP32")


def _is_faulty(model: onnx.ModelProto, material: Material) -> bool:
    """Return whether an FP16 model overflows anywhere, or its logits are too far from FP32's, on training texts."""
    order = sorted(range(len(material.rows))[:FP16_TEXTS], key=lambda index: len(material.rows[index]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fp16.onnx"
        save_graph(watched(model), path, external_from_bytes=2**30)
        runner = Padded(open_session(path), pad_token_id=material.pad_token_id)
        for piece in cut(order, BATCH):
            logits, *values = runner.session.run(None, runner.feed([material.rows[index] for index in piece]))
            near = bool(np.abs(logits - material.logits[list(piece)]).max() <= FP16_BOUND)
            if not near or overflows(values):
                return True
    return False


def _fp32(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:  # noqa: ARG001 - one signature
    return Made(fused, "export, fused")


def _fp16(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:  # noqa: ARG001 - one signature
    words = f", {', '.join(sorted(setting.blocked))} in FP32" if setting.blocked else ""
    return Made(to_float16(fused, blocked=setting.blocked), f"fp16 after fusion{words}")


def _rowwise(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:
    model = quantize_rowwise(fused, flat=flat, weight_max=setting.weight_max, keep=setting.keep)
    return Made(model, f"row-wise dynamic int8, weights per channel{', 7 bits' if setting.narrow else ''}")


def _dynamic(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:  # noqa: ARG001 - one signature
    from onnxruntime.quantization import QuantType, quantize_dynamic

    groups = product_groups(fused)
    with quiet(), TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(
            fused,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_exclude=[node.name for place in setting.keep for node in groups[place].nodes],
            per_channel=True,
            reduce_range=setting.narrow,
            weight_type=QuantType.QInt8,
            # The fused operators have no shape inference: without the type, "Unable to find data type".
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "MatMulConstBOnly": True},
        )
        words = ", reduce_range" if setting.narrow else ""
        return Made(load_graph(path), f"dynamic int8 per channel, one activation scale a batch{words}")


def _static(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:
    found = setting.calibrated
    assert found is not None
    model = quantize_static(fused, found.ranges, flat=flat, weight_max=setting.weight_max, keep=setting.keep)
    words = f"{found.method} over {found.num_texts} training texts, sha256 {found.sha256[:16]}"
    return Made(model, f"static int8 QDQ per channel, {words}{', 7 bits' if setting.narrow else ''}")


def _mixed(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:
    found = setting.calibrated
    assert found is not None
    model = quantize_mixed(fused, found.ranges, flat=flat, weight_max=setting.weight_max, keep=setting.keep)
    words = f"{found.method} over {found.num_texts} training texts, sha256 {found.sha256[:16]}"
    narrow = ", 7 bits" if setting.narrow else ""
    return Made(model, f"int8 per channel, static after LayerNormalization ({words}), row-wise elsewhere{narrow}")


def _weights(bits: int) -> Callable[[onnx.ModelProto, Setting, bool], Made]:
    def maker(fused: onnx.ModelProto, setting: Setting, flat: bool) -> Made:  # noqa: ARG001 - one signature
        with quiet():
            model = quantize_weights(fused, bits=bits, keep=setting.keep)
        return Made(model, f"weight-only int{bits}, blocks of {BLOCK} (MatMulNBits)")

    return maker


_MAKERS: dict[str, Callable[[onnx.ModelProto, Setting, bool], Made]] = {
    "fp32": _fp32,
    "fp16": _fp16,
    "int8": _rowwise,
    "int8-dynamic": _dynamic,
    "int8-mixed": _mixed,
    **dict.fromkeys((method for method in CALIBRATIONS if method != "int8-mixed"), _static),
    **{method: _weights(bits) for method, bits in WEIGHT_BITS.items()},
}
