"""A checkpoint to ONNX FP32 through optimum, and the proof that both compute the same for every shape."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from quantize.checkpoint import Checkpoint
from quantize.graph import load_graph, save_graph
from quantize.quiet import quiet
from quantize.session import Logits, Padded, Rows, cut, open_session, run_in_batches
from testbed.errors import UserError

# Shapes that no example of the exporter had; lengths are cut at the model's maximum.
BATCHES = (1, 3, 8)
LENGTHS = (5, 37, 128)
TORCH_BATCH = 32


class ParityError(UserError):
    """The exported graph does not compute what the checkpoint computes."""


def export_fp32(checkpoint: Checkpoint, path: Path) -> None:
    """Export the checkpoint to ``path`` through optimum; weights beyond protobuf's limit come beside it.

    Raises:
        UserError: optimum has no exporter for this architecture.
    """
    from optimum.exporters.onnx import main_export

    try:
        with quiet(), TemporaryDirectory(dir=path.parent) as scratch:
            main_export(
                str(checkpoint.folder),
                scratch,
                task="text-classification",
                do_validation=False,
                library_name="transformers",
                local_files_only=True,
            )
            _move(Path(scratch) / "model.onnx", path)
    except Exception as error:  # the exporters raise whatever the tracer raises
        msg = (
            f"{checkpoint.folder}: cannot be exported to ONNX ({error}); "
            "help: optimum-onnx lists the architectures that it exports"
        )
        raise UserError(msg) from error


def _move(made: Path, path: Path) -> None:
    """Rename an export with the weights beside it, which the graph names."""
    beside = made.with_name(f"{made.name}_data")
    if beside.is_file():
        save_graph(load_graph(made), path, external_from_bytes=0)
    else:
        made.rename(path)


def checkpoint_logits(checkpoint: Checkpoint, rows: Rows) -> Logits:
    """Return the PyTorch model's logits [texts, labels], computed in batches of similar length."""
    import torch

    results = np.empty((len(rows), checkpoint.model.config.num_labels), dtype=np.float32)
    by_length = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    with torch.inference_mode():
        for piece in cut(by_length, TORCH_BATCH):
            length = max(len(rows[index]) for index in piece)
            ids = torch.full((len(piece), length), checkpoint.pad_token_id)
            mask = torch.zeros_like(ids)
            for place, index in enumerate(piece):
                ids[place, : len(rows[index])] = torch.tensor(rows[index])
                mask[place, : len(rows[index])] = 1
            results[list(piece)] = checkpoint.model(input_ids=ids, attention_mask=mask).logits.float().numpy()
    return results


def check_parity(path: Path, checkpoint: Checkpoint, rows: Rows, expected: Logits, *, bound: float) -> float:
    """Return the largest logit difference between PyTorch and the ONNX file over all rows.

    Raises:
        ParityError: beyond ``bound``.
    """
    runner = Padded(open_session(path), pad_token_id=checkpoint.pad_token_id)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    difference = float(np.abs(run_in_batches(runner, rows, size=TORCH_BATCH, order=order) - expected).max())
    if not difference <= bound:
        msg = (
            f"{path.name}: logits differ from the checkpoint's by {difference:.2g}, allowed is {bound:.2g}; "
            "help: raise parity_bound only where you know why (a model in lower precision)"
        )
        raise ParityError(msg)
    return difference


def check_dynamic_axes(path: Path, checkpoint: Checkpoint, *, bound: float) -> None:
    """Prove that batch and length are free: symbolic in the graph, and right at shapes never seen by the exporter.

    A dimension that was 1 in the exporter's example may be frozen there without a word.

    Raises:
        ParityError: a frozen dimension, or wrong logits at one of the shapes.
    """
    _check_symbolic(path)
    runner = Padded(open_session(path), pad_token_id=checkpoint.pad_token_id)
    draw = np.random.default_rng(0)
    longest = checkpoint.tokenizer.max_length
    vocabulary = int(checkpoint.model.config.vocab_size)
    for batch in BATCHES:
        for length in sorted({min(length, longest) for length in LENGTHS}):
            rows = draw.integers(min(5, vocabulary - 1), vocabulary, size=(batch, length)).tolist()
            try:
                found = runner.run(rows)
            except Exception as error:  # ONNX Runtime's exceptions share no base class
                msg = f"{path.name}: fails at batch {batch}, length {length} ({error}); help: a dimension is frozen"
                raise ParityError(msg) from error
            difference = float(np.abs(found - checkpoint_logits(checkpoint, rows)).max())
            if not difference <= bound:
                msg = (
                    f"{path.name}: at batch {batch}, length {length} logits differ by {difference:.2g}, "
                    f"allowed is {bound:.2g}; help: the exporter froze a dimension"
                )
                raise ParityError(msg)


def _check_symbolic(path: Path) -> None:
    graph = onnx.load(path, load_external_data=False).graph
    for value in [*graph.input, *graph.output]:
        dimensions = value.type.tensor_type.shape.dim
        free = dimensions[:1] if value.name == "logits" else dimensions
        for axis, dimension in enumerate(free):
            if not dimension.dim_param:
                msg = (
                    f"{path.name}: axis {axis} of {value.name} is frozen at {dimension.dim_value}; "
                    "help: export with a batch of 2 or more"
                )
                raise ParityError(msg)
