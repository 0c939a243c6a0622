"""What every peer serves: the bundle's padded graph, its tokenizer, one ONNX Runtime thread; the same code for all."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

MAX_BATCH = 8
BATCH_WAIT_S = 0.002


def arguments(*more_ports: str) -> argparse.Namespace:
    """Return ``bundle``, ``variant``, ``port`` and further ports from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--variant", required=True)
    for option in ("--port", *more_ports):
        parser.add_argument(option, type=int, required=True)
    return parser.parse_args()


class Classifier:
    """Texts to labels with all their scores."""

    def __init__(self, bundle: Path, variant: str) -> None:
        manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
        described = next(found for found in manifest["variants"] if found["name"] == variant)
        self._labels = manifest["labels"]
        self._inputs = described["inputs"]
        self._tokenizer = Tokenizer.from_file(str(bundle / manifest["tokenizer_file"]))
        self._tokenizer.enable_padding(pad_id=manifest["pad_token_id"])
        self._tokenizer.enable_truncation(manifest["max_length"])
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(bundle / described["path"], options, providers=["CPUExecutionProvider"])

    def __call__(self, texts: list[str]) -> list[dict[str, Any]]:
        """Return ``{"label", "scores"}`` of each text; one padded batch."""
        encoded = self._tokenizer.encode_batch(texts)
        arrays = {
            "input_ids": np.array([row.ids for row in encoded], dtype=np.int64),
            "attention_mask": np.array([row.attention_mask for row in encoded], dtype=np.int64),
            "token_type_ids": np.array([row.type_ids for row in encoded], dtype=np.int64),
        }
        logits = self._session.run(["logits"], {name: arrays[name] for name in self._inputs})[0]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = (exponentials / exponentials.sum(axis=1, keepdims=True)).tolist()
        return [{"label": self._labels[int(np.argmax(row))], "scores": row} for row in scores]
