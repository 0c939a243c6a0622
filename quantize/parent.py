"""The FP32 parent of a model's variants: exported, proven equal to the checkpoint, fused, and packed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import onnx

from quantize.checkpoint import Checkpoint
from quantize.export import check_dynamic_axes, check_parity, checkpoint_logits, export_fp32
from quantize.fuse import fuse
from quantize.graph import save_graph
from quantize.packed import packed_graph
from quantize.precision import Setting, make
from quantize.session import Logits, Packed, Padded, Rows, open_session


class Parent(NamedTuple):
    """A model in ONNX FP32.

    Attributes:
        padded: the fused graph.
        packed: the same weights in the packed layout, or None where the architecture cannot be packed.
        logits: of the PyTorch model for the test texts, [texts, labels].
    """

    padded: onnx.ModelProto
    packed: onnx.ModelProto | None
    logits: Logits


class Layouts(NamedTuple):
    """A variant on disk, opened.

    Attributes:
        exported: the padded graph.
        method: how it was made.
        padded, packed: open sessions, the second None where there is no such layout.
        files: everything written; the padded graph first.
        packed_path: its file, or None.
    """

    exported: onnx.ModelProto
    method: str
    padded: Padded
    packed: Packed | None
    files: tuple[Path, ...]
    packed_path: Path | None


class Exported(NamedTuple):
    """An export that was proven: the PyTorch model's logits [texts, labels], and how far the ONNX file's are off."""

    logits: Logits
    difference: float


def export_proven(checkpoint: Checkpoint, rows: Rows, path: Path, *, bound: float) -> Exported:
    """Export a checkpoint to ``path``; prove its free shapes, and its parity on the test texts.

    Args:
        checkpoint: of the model.
        rows: token ids of the test texts.
        path: of the ONNX file.
        bound: largest logit difference allowed.

    Raises:
        UserError: no exporter for the architecture, or a difference beyond ``bound``.
    """
    export_fp32(checkpoint, path)
    check_dynamic_axes(path, checkpoint, bound=bound)
    logits = checkpoint_logits(checkpoint, rows)
    return Exported(logits, check_parity(path, checkpoint, rows, logits, bound=bound))


def export_parent(checkpoint: Checkpoint, rows: Rows, *, bound: float) -> Parent:
    """Export a checkpoint, prove it, fuse it and pack it; raises what ``export_proven`` raises."""
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "fp32.onnx"
        exported = export_proven(checkpoint, rows, path, bound=bound)
        return Parent(fuse(path, checkpoint), packed_graph(checkpoint), exported.logits)


def write_layouts(
    method: str, parent: Parent, stem: Path, *, setting: Setting, pad_token_id: int, external_from_bytes: int
) -> Layouts:
    """Make one precision of both layouts, write ``<stem>.onnx`` and ``<stem>.packed.onnx``, and open them."""
    made = make(method, parent.padded, setting, flat=False)
    path, packed_path = stem.with_name(f"{stem.name}.onnx"), stem.with_name(f"{stem.name}.packed.onnx")
    files = save_graph(made.model, path, external_from_bytes=external_from_bytes)
    padded = Padded(open_session(path), pad_token_id=pad_token_id)
    if parent.packed is None:
        return Layouts(made.model, made.method, padded, None, files, None)
    packed_model = make(method, parent.packed, setting, flat=True).model
    files += save_graph(packed_model, packed_path, external_from_bytes=external_from_bytes)
    return Layouts(made.model, made.method, padded, Packed(open_session(packed_path)), files, packed_path)
