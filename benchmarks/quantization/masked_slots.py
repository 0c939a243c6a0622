"""What masked slots cost on this CPU: one variant with denormals computed and flushed to zero, by texts a batch.

``python -m benchmarks.quantization.masked_slots RUN --variant student-int8 --out masked-slots.json``
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from quantize.session import Packed, Padded, Rows, cut, open_session
from testbed.bundle import Bundle
from testbed.dataset import read_split
from testbed.denormals import FlushedDenormals
from testbed.machine import describe, git_commit, versions
from testbed.metrics import mean_interval
from testbed.records import write_atomically
from testbed.tokenization import TextTokenizer

SIZES, NUM_TEXTS, ROUNDS = (1, 4, 8, 16), 256, 9
Feeds = list[dict[str, Any]]
MODES: dict[str, type[AbstractContextManager[None]]] = {"computed": nullcontext, "flushed": FlushedDenormals}


def cpu_us(runner: Padded | Packed, feeds: Feeds, mode: str) -> float:
    """Return the CPU's microseconds of one pass."""
    with MODES[mode]():
        begin_s = time.thread_time()
        for feed in feeds:
            runner.session.run(["logits"], feed)
        return (time.thread_time() - begin_s) * 1e6


def compared(layout: str, runner: Padded | Packed, rows: Rows, size: int) -> dict[str, Any]:
    """Return microseconds a text with denormals and without, in turn, and their ratio over the rounds."""
    feeds = [dict(runner.feed(piece)) for piece in cut(rows, size)]
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(ROUNDS):
        for mode, some in found.items():
            some.append(cpu_us(runner, feeds, mode) / len(rows))
    ratio = mean_interval([one / other for one, other in zip(found["computed"], found["flushed"], strict=True)])
    medians = {f"{mode}_us": float(np.median(some)) for mode, some in found.items()}
    return {"layout": layout, "texts_a_batch": size} | medians | {"ratio_low": ratio.low, "ratio_high": ratio.high}


def main() -> None:
    """Measure both layouts, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run: dataset and bundle")
    parser.add_argument("--variant", default="student-int8")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bundle = Bundle(options.run / "bundle")
    manifest, variant = bundle.manifest, bundle.manifest.variant(options.variant)
    tokenizer = TextTokenizer(bundle.folder / manifest.tokenizer_file, max_length=manifest.max_length)
    rows = tokenizer.encode_batch(read_split(options.run / "dataset", "test").texts[:NUM_TEXTS])
    runners: dict[str, Padded | Packed] = {
        "padded": Padded(open_session(bundle.folder / variant.path), pad_token_id=manifest.pad_token_id)
    }
    if variant.packed_path:
        runners["packed"] = Packed(open_session(bundle.folder / variant.packed_path))
    figures = [compared(layout, runner, rows, size) for layout, runner in runners.items() for size in SIZES]
    record = {
        "machine": describe().model_dump(mode="json"),
        "versions": versions(),
        "git_commit": git_commit(),
        "variant": variant.name,
        "files": variant.files,
        "figures": figures,
    }
    write_atomically(options.out, lambda path: path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8"))
    print("| layout | texts a batch | computed, µs a text | flushed | ratio |\n|---|--:|--:|--:|--:|")
    for row in figures:
        micros = f"{row['computed_us']:.0f} | {row['flushed_us']:.0f}"
        ratio = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
        print(f"| {row['layout']} | {row['texts_a_batch']} | {micros} | {ratio} |")


if __name__ == "__main__":
    main()
