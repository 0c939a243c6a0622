"""Texts a second in process, tokenization included, by layout and texts a batch; and the operators by time.

``python -m benchmarks.quantization.layouts BUNDLE --variants student-fp32 student-int8 --out layouts.json``
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime

from quantize.session import Packed, Padded, Runner, cut, open_session
from testbed.bundle import Bundle
from testbed.dataset import read_split
from testbed.machine import describe, git_commit, versions
from testbed.metrics import bootstrap_mean
from testbed.records import write_atomically
from testbed.tokenization import TextTokenizer

SIZES = (1, 2, 4, 8, 16, 32)
NUM_TEXTS, ROUNDS, PROFILED_SIZE = 256, 7, 8


def texts_per_s(runner: Runner, tokenizer: TextTokenizer, texts: list[str], size: int) -> float:
    """Return texts a wall second, one pass over the texts."""
    begin_s = time.perf_counter()
    for piece in cut(texts, size):
        runner.run(tokenizer.encode_batch(piece))
    return len(texts) / (time.perf_counter() - begin_s)


def operators_by_time(path: Path, tokenizer: TextTokenizer, texts: list[str]) -> dict[str, float]:
    """Return operator to microseconds a text, packed by ``PROFILED_SIZE``, the first pass left out."""
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        texts_per_s(Packed(session), tokenizer, texts, PROFILED_SIZE)
        events = json.loads(Path(session.end_profiling()).read_text())
    spent: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            spent[event["args"]["op_name"]] += event["dur"]
    return {name: micros / len(texts) for name, micros in spent.most_common(12)}


def measure(bundle: Bundle, names: list[str], texts: list[str]) -> list[dict[str, Any]]:
    """Return a row for each variant, layout and batch size; the rounds of all are interleaved."""
    runners: dict[tuple[str, str], tuple[Runner, TextTokenizer]] = {}
    for name in names:
        variant = bundle.manifest.variant(name)
        tokenizer, pad = bundle.tokenizer(variant), bundle.pad_token_id(variant)
        runners[name, "padded"] = Padded(open_session(bundle.model_file(variant)), pad_token_id=pad), tokenizer
        packed = bundle.packed_file(variant)
        if packed is not None:
            runners[name, "packed"] = Packed(open_session(packed)), tokenizer
    rows = []
    for size in SIZES:
        rates: dict[tuple[str, str], list[float]] = {key: [] for key in runners}
        for _ in range(ROUNDS):
            for key, (runner, tokenizer) in runners.items():
                rates[key].append(texts_per_s(runner, tokenizer, texts, size))
        for (name, layout), found in rates.items():
            interval = bootstrap_mean(found)
            row = {"variant": name, "layout": layout, "texts_a_batch": size, "texts_per_s": float(np.median(found))}
            rows.append(row | {"low": interval.low, "high": interval.high})
    return rows


def main() -> None:
    """Measure, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--variants", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bundle = Bundle(options.bundle)
    texts = read_split(options.dataset, "test").texts[:NUM_TEXTS]
    rows = measure(bundle, options.variants, texts)
    profiles = {}
    for name in options.variants:
        variant = bundle.manifest.variant(name)
        packed = bundle.packed_file(variant)
        if packed is not None:
            profiles[name] = operators_by_time(packed, bundle.tokenizer(variant), texts)
    document = {"machine": describe().model_dump(), "versions": versions(), "git_commit": git_commit()}
    text = json.dumps(document | {"rows": rows, "operators_us_per_text": profiles}, indent=1) + "\n"
    write_atomically(options.out, lambda path: path.write_text(text, encoding="utf-8"))
    for name in options.variants:
        for layout in ("padded", "packed"):
            found = [f"{row['texts_per_s']:6.0f}" for row in rows if (row["variant"], row["layout"]) == (name, layout)]
            print(f"{name:<34} {layout}  {' '.join(found)}")


if __name__ == "__main__":
    main()
