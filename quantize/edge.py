"""A variant in ONNX Runtime's ``.ort`` format for small builds: which operators it needs, what each form weighs."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from quantize.output import output_folder
from quantize.quiet import quiet
from testbed.bundle import Bundle
from testbed.errors import UserError

OPERATORS = "required_operators.config"


class Sizes(NamedTuple):
    """Bytes of one variant's padded graph: as ONNX, as ``.ort``, and each compressed by gzip."""

    variant: str
    onnx_bytes: int
    ort_bytes: int
    onnx_gzip_bytes: int
    ort_gzip_bytes: int


def convert_to_ort(bundle: Path, *, variants: Sequence[str], folder: Path) -> tuple[Sizes, ...]:
    """Write ``<variant>.ort`` for each variant, and one list of the operators that a minimal build must contain.

    ONNX Runtime's optimisations are applied beforehand for this machine's instruction set (style "Fixed"), so a small
    build on the device needs no optimiser.

    Args:
        bundle: holds the variants.
        variants: names.
        folder: of the result; replaced as a whole.

    Raises:
        UserError: no such variant, a damaged file, or a variant with external data, which the format cannot hold, or a
            folder that cannot be written.
    """
    from onnxruntime.tools.convert_onnx_models_to_ort import OptimizationStyle, convert_onnx_models_to_ort

    opened = Bundle(bundle)
    with output_folder(folder) as temporary:
        for name in variants:
            variant = opened.manifest.variant(name)
            source = opened.model_file(variant)
            if any(file.endswith(".data") for file in variant.files):
                msg = f"{bundle}: {name} keeps its weights in another file, which .ort cannot; help: a smaller variant"
                raise UserError(msg)
            shutil.copyfile(source, temporary / f"{name}.onnx")
        with quiet():
            convert_onnx_models_to_ort(temporary, optimization_styles=[OptimizationStyle.Fixed])
        made = next(temporary.glob(f"*{OPERATORS}"))
        made.rename(temporary / OPERATORS)
        sizes = tuple(_sizes(name, temporary) for name in variants)
        for name in variants:
            (temporary / f"{name}.onnx").unlink()
    return sizes


def _sizes(name: str, folder: Path) -> Sizes:
    onnx_file, ort_file = folder / f"{name}.onnx", folder / f"{name}.ort"
    return Sizes(
        name,
        onnx_file.stat().st_size,
        ort_file.stat().st_size,
        _gzip_bytes(onnx_file),
        _gzip_bytes(ort_file),
    )


def _gzip_bytes(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), compresslevel=6))
