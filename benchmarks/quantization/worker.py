"""One system under test: answers commands on standard input until it is closed. Needs numpy and the one runtime.

Commands, one JSON a line: ``{"do": "logits", "size": 8}`` answers the logits of all texts in batches of that size, each
padded to its longest; ``{"do": "time", "from": 0, "to": 32}`` answers CPU seconds a text, one text at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

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


def feed_of(rows: list[list[int]], names: list[str], pad: int) -> Feed:
    """Return the inputs of a batch, padded to its longest row."""
    length = max(map(len, rows))
    ids = np.full((len(rows), length), pad, dtype=np.int64)
    mask = np.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: arrays[name] for name in names}


def main() -> None:
    """Load the model and the rows, then answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=["onnxruntime", "openvino"])
    parser.add_argument("model", type=Path)
    parser.add_argument("rows", type=Path, help="JSON: list of token-id lists")
    parser.add_argument("--pad", type=int, default=0)
    options = parser.parse_args()
    names, run = (openvino_model if options.runtime == "openvino" else onnxruntime_model)(options.model)
    rows = json.loads(options.rows.read_text())
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "logits":
            size = command["size"]
            pieces = [run(feed_of(rows[at : at + size], names, options.pad)) for at in range(0, len(rows), size)]
            print(json.dumps({"logits": np.concatenate(pieces).tolist()}), flush=True)
            continue
        some = [feed_of([row], names, options.pad) for row in rows[command["from"] : command["to"]]]
        begin_s = time.process_time()
        for feed in some:
            run(feed)
        print(json.dumps({"seconds": (time.process_time() - begin_s) / len(some)}), flush=True)


if __name__ == "__main__":
    main()
