"""The packed layout equals the padded one, whatever the architecture and the texts' order."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from quantize.checkpoint import Checkpoint, open_checkpoint
from quantize.export import checkpoint_logits
from quantize.float16 import to_float16
from quantize.packed import packed_graph
from quantize.rowwise import quantize_rowwise
from quantize.session import Packed, open_session, run_in_batches
from quantize.weights import quantize_weights
from tests.tiny import LABELS, write_checkpoint

LENGTHS = (5, 2, 17, 32, 3, 9, 2, 31)
PACKABLE = ("bert", "distilbert", "roberta", "mpnet", "electra")


def opened(folder: Path, architecture: str) -> Checkpoint:
    write_checkpoint(folder, architecture, max_length=32)
    return open_checkpoint(folder, labels=LABELS, max_length=32)


@pytest.mark.parametrize("architecture", PACKABLE)
def test_equal_to_pytorch_for_mixed_lengths(tmp_path: Path, architecture: str) -> None:
    checkpoint = opened(tmp_path, architecture)
    graph = packed_graph(checkpoint)
    assert graph is not None
    path = tmp_path / "packed.onnx"
    onnx.save(graph, path)
    draw = np.random.default_rng(0)
    rows = [draw.integers(4, 20, size=length).tolist() for length in LENGTHS]
    runner = Packed(open_session(path))
    expected = checkpoint_logits(checkpoint, rows)
    for size in (1, 3, len(rows)):
        np.testing.assert_allclose(run_in_batches(runner, rows, size=size), expected, atol=1e-5)


def factor_rows(graph: onnx.ModelProto, path: Path, rows: list[list[int]]) -> dict[str, int]:
    """Run the texts at once and return how many rows each product by a constant matrix was computed for."""
    products = [node for node in graph.graph.node if node.op_type in {"MatMul", "Gemm"}]
    known = {output.name for output in graph.graph.output}
    wanted = [node.output[0] for node in products if node.output[0] not in known]
    graph.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted)
    onnx.save(graph, path)
    session = open_session(path)
    found = session.run(None, Packed(session).feed(rows))
    named = zip((output.name for output in session.get_outputs()), found, strict=True)
    return {name: value.shape[0] for name, value in named}


@pytest.mark.parametrize("architecture", PACKABLE)
def test_the_last_layer_goes_on_with_one_token_a_text(tmp_path: Path, architecture: str) -> None:
    length, texts, width = 11, 5, 32
    checkpoint = opened(tmp_path, architecture)
    graph = packed_graph(checkpoint)
    assert graph is not None
    sizes = {entry.name: np.prod(entry.dims) for entry in graph.graph.initializer}
    weights = {node.output[0]: sizes[node.input[1]] for node in graph.graph.node if node.op_type in {"MatMul", "Gemm"}}
    computed = factor_rows(graph, tmp_path / "packed.onnx", [[5] * length] * texts)
    after = [name for name in weights if computed[name] == texts]
    assert len(after) == 5, f"the last layer's three products and the head's two, not {after}"
    flops = sum(2 * computed[name] * weights[name] for name in weights)
    # Scores and their sums with the values: of every token in the first layer, of one a text in the second and last.
    flops += 4 * width * length * texts * (length + 1)
    assert checkpoint.packed_flops_per_token(length) == pytest.approx(flops / (texts * length))
    assert checkpoint.packed_flops_per_token(length) < checkpoint.flops_per_token(length)


@pytest.mark.parametrize("architecture", PACKABLE)
@pytest.mark.parametrize(
    "change", [to_float16, partial(quantize_rowwise, flat=True), partial(quantize_weights, bits=8)]
)
def test_every_precision_keeps_texts_apart(
    tmp_path: Path, architecture: str, change: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    checkpoint = opened(tmp_path, architecture)
    graph = packed_graph(checkpoint)
    assert graph is not None
    onnx.save(change(graph), tmp_path / "packed.onnx")
    draw = np.random.default_rng(0)
    rows = [draw.integers(4, 20, size=length).tolist() for length in LENGTHS]
    runner = Packed(open_session(tmp_path / "packed.onnx"))
    alone = run_in_batches(runner, rows, size=1)
    assert 0 < np.abs(alone - checkpoint_logits(checkpoint, rows)).max() < 0.05
    for size in (3, len(rows)):
        np.testing.assert_allclose(run_in_batches(runner, rows, size=size), alone, atol=1e-3)


@pytest.mark.parametrize("architecture", ["deberta-v2"])
def test_none_where_the_architecture_cannot_be_packed(tmp_path: Path, architecture: str) -> None:
    assert packed_graph(opened(tmp_path, architecture)) is None
