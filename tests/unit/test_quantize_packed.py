"""The packed layout equals the padded one, whatever the architecture and the texts' order."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from quantize.checkpoint import Checkpoint, open_checkpoint
from quantize.export import checkpoint_logits
from quantize.packed import packed_graph
from quantize.session import Packed, open_session, run_in_batches
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


@pytest.mark.parametrize("architecture", ["deberta-v2"])
def test_none_where_the_architecture_cannot_be_packed(tmp_path: Path, architecture: str) -> None:
    assert packed_graph(opened(tmp_path, architecture)) is None
