"""Denormals are zero inside the block and whole outside it; both doors to ONNX Runtime go through it."""

import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from quantize.session import Padded, open_session
from serve.backend import Backend
from serve.config import PROFILES
from testbed.denormals import FlushedDenormals

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only x86-64 Linux's thread mode is changed"
)

SMALLEST = [sys.float_info.min]
DENORMAL = np.float32(1e-39)


def has_denormals() -> bool:
    return SMALLEST[0] / 2 > 0


def test_only_inside_the_block() -> None:
    assert has_denormals()
    with FlushedDenormals():
        assert not has_denormals()
        with FlushedDenormals():
            assert not has_denormals()
        assert not has_denormals()
    assert has_denormals()


def test_an_exception_ends_it_too() -> None:
    with pytest.raises(ZeroDivisionError), FlushedDenormals():
        _ = 1 // int(SMALLEST[0] / 2)
    assert has_denormals()


def test_a_thread_inherits_it_and_others_are_left_alone() -> None:
    seen: dict[str, bool] = {}
    go, done = threading.Event(), threading.Event()

    def older() -> None:
        go.wait(10)
        seen["older"] = has_denormals()
        done.set()

    threading.Thread(target=older).start()
    with FlushedDenormals():
        go.set()
        assert done.wait(10)
        younger = threading.Thread(target=lambda: seen.update(younger=has_denormals()))
        younger.start()
        younger.join(10)
    assert seen == {"older": True, "younger": False}


def write_doubling(path: Path, size: int) -> Path:
    """Write a graph that answers ``logits = 2 input_ids + DENORMAL``, long enough to be shared among threads."""
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "small"], ["sum"]),
        helper.make_node("Mul", ["sum", "two"], ["logits"]),
    ]
    constants = {"small": np.full(size, DENORMAL), "two": np.float32(2)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", size])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def served(path: Path, feed: dict[str, np.ndarray], threads: int) -> np.ndarray:
    return Backend(path, profile=PROFILES["cpu"], threads=threads).run(feed)


def quantized(path: Path, feed: dict[str, np.ndarray], threads: int) -> np.ndarray:
    return Padded(open_session(path), pad_token_id=0).run(feed["input_ids"].tolist())


@pytest.mark.parametrize(("run", "threads"), [(served, 1), (served, 4), (quantized, 1)])
def test_models_run_in_it(tmp_path: Path, run: Callable[..., np.ndarray], threads: int) -> None:
    size = 1_000_000
    feed = {"input_ids": np.zeros((1, 1), dtype=np.int64)}
    answer = run(write_doubling(tmp_path / "model.onnx", size), feed, threads)
    assert answer.shape == (1, size)
    assert not answer.any(), f"{np.count_nonzero(answer)} denormals were computed with"
    assert has_denormals()
