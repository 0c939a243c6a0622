"""One system under test: answers commands on standard input until it is closed. Needs numpy and the one runtime.

Commands, one JSON a line: ``{"do": "logits", "size": 8}`` answers the logits of all texts in batches of that size, each
padded to its longest; ``{"do": "packed", "size": 8}`` the same in the packed layout; ``{"do": "time", "from": 0,
"to": 32, "size": 8}`` answers CPU seconds a text, in batches of that size: packed where more than one text meets a
system that can, padded elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

if "MASKED_CPU" in os.environ:  # before any library looks at the CPU
    from masked_cpu import mask_cpu

    mask_cpu()
import numpy as np

Rows = list[list[int]]
Feed = dict[str, "np.ndarray"]
Run = Callable[[Feed], "np.ndarray"]


def onnxruntime_model(path: Path) -> tuple[list[str], Run]:
    """Return input names and a function from a feed to logits, on ONNX Runtime's CPU provider."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [entry.name for entry in session.get_inputs()], lambda feed: session.run(["logits"], feed)[0]


def openvino_model(path: Path) -> tuple[list[str], Run]:
    """The same on OpenVINO's CPU plugin."""
    import openvino

    core = openvino.Core()
    config = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(core.read_model(path), "CPU", config)
    request = compiled.create_infer_request()
    names = [entry.get_any_name() for entry in compiled.inputs]
    return names, lambda feed: np.array(request.infer(feed)[0])


def padded_feed(rows: Rows, names: list[str], pad: int) -> Feed:
    """Return the inputs of a batch, padded to its longest row."""
    length = max(map(len, rows))
    ids = np.full((len(rows), length), pad, dtype=np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: arrays[name] for name in names}


def packed_feed(rows: Rows) -> Feed:
    """Return the inputs of a batch without padding (docs/architecture.md)."""
    lengths = np.array([len(row) for row in rows])
    return {
        "input_ids": np.concatenate([np.array(row) for row in rows]),
        "segment_ids": np.repeat(np.arange(len(rows)), lengths),
        "position_ids": np.concatenate([np.arange(length) for length in lengths]),
        "first_token": np.cumsum(lengths) - lengths,
    }


class System:
    """The model in one or two layouts, and the texts."""

    def __init__(self, runtime: str, model: Path, packed: Path | None, rows: Rows, pad: int) -> None:
        self._names, self._padded = (openvino_model if runtime == "openvino" else onnxruntime_model)(model)
        self._packed = None if packed is None else onnxruntime_model(packed)[1]
        self._rows, self._pad = rows, pad

    def logits(self, size: int, *, packed: bool) -> list[list[float]]:
        """Return the logits of all texts, [texts][labels]."""
        return np.concatenate([run(feed) for run, feed in self._feeds(self._rows, size, packed)]).tolist()

    def seconds(self, begin: int, end: int, size: int) -> float:
        """Return CPU seconds a text; the inputs are made before the clock starts."""
        some = list(self._feeds(self._rows[begin:end], size, packed=size > 1 and self._packed is not None))
        begin_s = time.process_time()
        for run, feed in some:
            run(feed)
        return (time.process_time() - begin_s) / (end - begin)

    def _feeds(self, rows: Rows, size: int, packed: bool) -> list[tuple[Run, Feed]]:
        pieces = [rows[at : at + size] for at in range(0, len(rows), size)]
        if packed:
            assert self._packed is not None
            return [(self._packed, packed_feed(piece)) for piece in pieces]
        return [(self._padded, padded_feed(piece, self._names, self._pad)) for piece in pieces]


def main() -> None:
    """Load the model and the rows, then answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=["onnxruntime", "openvino"])
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path, help="JSON: list of token-id lists")
    parser.add_argument("--packed", type=Path, help="the packed layout of the same model")
    parser.add_argument("--pad", type=int, default=0)
    options = parser.parse_args()
    rows = json.loads(options.rows.read_text())
    system = System(options.runtime, options.model, options.packed, rows, options.pad)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "time":
            answer: object = system.seconds(command["from"], command["to"], command["size"])
        else:
            answer = system.logits(command["size"], packed=command["do"] == "packed")
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    main()
