"""Small bundles with known answers, and real server processes for tests.

The graph's logits are the mean of its tokens' rows of a table, in both layouts, so a test can do the arithmetic. Words
with a cost keep it busy: ``slowword`` for about 0.1 s, ``longword`` for about 1.5 s, ``stuckword`` for good;
``brokenword`` makes NaN; ``bigword`` asks for 256 MiB, ``hugeword`` for more memory than any machine has.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from testbed import machine
from testbed.bundle import write_manifest
from testbed.records import (
    Accuracy,
    BundleManifest,
    Energy,
    Golden,
    Interval,
    Usage,
    Variant,
    Verification,
    file_sha256,
)
from testbed.tokenization import TextTokenizer

ROOT = Path(__file__).parent.parent
LABELS = ("animal", "city", "number")
WORDS = "cat dog horse whale paris tokyo lima oslo seven eleven forty dozen what is the name of a big old one".split()
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "slowword", "longword", "stuckword", "brokenword")
BIG_WORD, HUGE_WORD = "bigword", "hugeword"  # last in the vocabulary
MAX_LENGTH = 32
TRIPS = {"slowword": 3_000, "longword": 45_000, "stuckword": 2**40}
BIG, HUGE = 2**26, 2**46  # floats
START_S = 60.0


def write_bundle(
    folder: Path, *, name: str = "words", version: int = 1, seed: int = 0, packed: bool = True, precision: str = "fp32"
) -> Path:
    """Write a bundle of one variant, ``student-<precision>``, whose answers depend on ``seed``."""
    (folder / "variants").mkdir(parents=True)
    write_tokenizer(folder / "tokenizer.json")
    table = weights(seed)
    paths = {False: f"variants/student-{precision}.onnx", True: f"variants/student-{precision}.packed.onnx"}
    layouts = (False, True) if packed else (False,)
    for layout in layouts:
        onnx.save(graph(table, packed=layout), folder / paths[layout])
    tokenizer = TextTokenizer(folder / "tokenizer.json", max_length=MAX_LENGTH)
    texts = ["cat", "the name of a big old dog", "what is seven", "paris is one big old name of tokyo"]
    rows = tokenizer.encode_batch(texts)
    interval = Interval(low=0.5, high=1, method="wilson")
    accuracy = Accuracy(value=1, interval=interval, num_samples=len(texts))
    usage = Usage(wall_s=1, cpu_s=1, energy=Energy(reason="made by a test"))
    variant = Variant(
        name=f"student-{precision}",
        model="student",
        precision=precision,  # type: ignore[arg-type]
        method="by hand",
        inputs=("input_ids", "attention_mask"),
        path=paths[False],
        packed_path=paths[True] if packed else None,
        files={paths[layout]: file_sha256(folder / paths[layout]) for layout in layouts},
        size_bytes=(folder / paths[False]).stat().st_size,
        num_parameters=table.size,
        flops_per_token=2.0 * table.shape[1],
        isa=machine.isa(),
        num_nodes=1,
        verification=Verification(
            accuracy=accuracy,
            parent="student-fp32",
            accuracy_difference=0,
            difference_interval=interval,
            agreement=1,
            max_logit_difference=0,
            all_finite=True,
        ),
        usage=usage,
    )
    manifest = BundleManifest(
        **machine.provenance({}, {}),
        name=name,
        version=version,
        labels=LABELS,
        max_length=MAX_LENGTH,
        pad_token_id=0,
        tokenizer_sha256=file_sha256(folder / "tokenizer.json"),
        lengths=tuple(sorted(map(len, rows))),
        goldens=tuple(
            Golden(model="student", text=text, input_ids=tuple(ids), logits=tuple(table[ids].mean(axis=0).tolist()))
            for text, ids in zip(texts, rows, strict=True)
        ),
        variants=(variant,),
        usage=usage,
    )
    write_manifest(manifest, folder)
    return folder


def weights(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the table of token rows: [vocabulary, labels]."""
    table = np.random.default_rng(seed).normal(size=(len(SPECIAL) + len(WORDS) + 2, len(LABELS))).astype(np.float32)
    table[SPECIAL.index("brokenword")] = np.nan
    return table


def write_tokenizer(path: Path) -> None:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *WORDS, BIG_WORD, HUGE_WORD])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", SPECIAL.index("[CLS]")), ("[SEP]", SPECIAL.index("[SEP]"))]
    )
    tokenizer.save(str(path))


def graph(table: np.ndarray[Any, np.dtype[np.float32]], *, packed: bool) -> onnx.ModelProto:
    """Return the model in one layout; the cost table's largest entry among the tokens is how often its loop turns."""
    trips = np.zeros(len(table), dtype=np.int64)
    for word, turns in TRIPS.items():
        trips[SPECIAL.index(word)] = turns
    sizes = np.ones(len(table), dtype=np.int64)
    sizes[-2:] = BIG, HUGE
    constants = {
        "table": table,
        "sizes": sizes,
        "trips": trips,
        "matrix": np.eye(64, dtype=np.float32),
        "zero": np.zeros(1, dtype=np.int64),
        "one": np.ones(1, dtype=np.int64),
        "last": np.array([1], dtype=np.int64),
        "width": np.array([len(LABELS)], dtype=np.int64),
        "last2": np.array([2], dtype=np.int64),
        "yes": np.array(True),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["trips", "input_ids"], ["costs"]),
        node("ReduceMax", ["costs"], ["turns"], keepdims=0),
        node("Loop", ["turns", "yes", "matrix"], ["busy"], body=_turn()),
        # The loop's result is multiplied by nothing and added, so that it cannot be optimised away.
        node("Gather", ["table", "input_ids"], ["rows"]),
        *(_packed_mean() if packed else _padded_mean()),
        node("Gather", ["sizes", "input_ids"], ["memories"]),
        node("ReduceMax", ["memories"], ["memory"], keepdims=0),
        node("Unsqueeze", ["memory", "zero"], ["memory_shape"]),
        node("ConstantOfShape", ["memory_shape"], ["filled"]),
        node("Gather", ["filled", "zero"], ["first_filled"]),
        node("Size", ["busy"], ["size"]),
        node("Sub", ["size", "size"], ["none"]),
        node("Cast", ["none"], ["nothing"], to=TensorProto.FLOAT),
        node("Add", ["mean", "nothing"], ["answer"]),
        node("Add", ["answer", "first_filled"], ["logits"]),
    ]
    names = ("input_ids", "segment_ids", "position_ids", "first_token") if packed else ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, _shape(name, packed=packed)) for name in names]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", len(LABELS)])
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    body = helper.make_graph(nodes, "words", inputs, [output], initializers)
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _shape(name: str, *, packed: bool) -> list[str]:
    if not packed:
        return ["texts", "length"]
    return ["texts"] if name == "first_token" else ["tokens"]


def _turn() -> onnx.GraphProto:
    value = helper.make_tensor_value_info
    return helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["go_on_again"]),
            helper.make_node("MatMul", ["before", "before"], ["after"]),
        ],
        "turn",
        [
            value("turn", TensorProto.INT64, []),
            value("go_on", TensorProto.BOOL, []),
            value("before", TensorProto.FLOAT, [64, 64]),
        ],
        [value("go_on_again", TensorProto.BOOL, []), value("after", TensorProto.FLOAT, [64, 64])],
    )


def _padded_mean() -> list[onnx.NodeProto]:
    node = helper.make_node
    return [
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "last2"], ["mask3"]),
        node("Constant", [], ["zero3"], value_float=0.0),
        node("Equal", ["mask3", "zero3"], ["padding"]),
        node("Where", ["padding", "zero3", "rows"], ["masked"]),
        node("ReduceSum", ["masked", "one"], ["sums"], keepdims=0),
        node("ReduceSum", ["mask", "one"], ["counts"], keepdims=1),
        node("Div", ["sums", "counts"], ["mean"]),
    ]


def _packed_mean() -> list[onnx.NodeProto]:
    node = helper.make_node
    return [
        node("Shape", ["first_token"], ["texts"]),
        node("Concat", ["texts", "width"], ["sums_shape"], axis=0),
        node("ConstantOfShape", ["sums_shape"], ["zeros"]),
        node("Unsqueeze", ["segment_ids", "last"], ["where"]),
        node("ScatterND", ["zeros", "where", "rows"], ["sums"], reduction="add"),
        node("Shape", ["rows"], ["rows_shape"]),
        node("ConstantOfShape", ["rows_shape"], ["ones"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])),
        node("ScatterND", ["zeros", "where", "ones"], ["counts"], reduction="add"),
        node("Div", ["sums", "counts"], ["mean"]),
    ]


def expected_logits(texts: Sequence[str], folder: Path, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what the graph must answer: [texts, labels]."""
    tokenizer = TextTokenizer(folder / "tokenizer.json", max_length=MAX_LENGTH)
    return np.stack([weights(seed)[ids].mean(axis=0) for ids in tokenizer.encode_batch(texts)])


@dataclass
class Running:
    """A server process: its URL, and what it said on standard error."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def events(self, message: str) -> list[dict[str, Any]]:
        """Return the log records of one message."""
        found = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [record for record in found if record["message"] == message]

    def wait_until_ready(self) -> None:
        give_up_s = time.monotonic() + START_S
        while time.monotonic() < give_up_s:
            assert self.process.poll() is None, "\n".join(self.lines)
            try:
                if httpx.get(f"{self.url}/v2/health/ready", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.02)
        raise AssertionError("not ready: " + "\n".join(self.lines))

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running(bundle: Path, *options: str, ready: bool = True, **environment: str) -> Iterator[Running]:
    """Start ``python -m serve`` on a free port, wait until it is ready, and end it afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scheme = "https" if "--tls-key" in options else "http"
    process = subprocess.Popen(
        [sys.executable, "-m", "serve", str(bundle), "--port", str(port), *options],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Running(process, f"{scheme}://127.0.0.1:{port}")
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: server.lines.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        if ready:
            server.wait_until_ready()
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def refused(*arguments: str) -> tuple[int, str]:
    """Run ``python -m serve`` to its end; returns exit status and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "serve", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr
