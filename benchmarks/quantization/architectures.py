"""Architectures at real size: random weights through export, fusion, packing, INT8 and the invariance checks.

``python -m benchmarks.quantization.architectures --tokenizer runs/trec/student/tokenizer.json --out FILE.json``

Random weights say nothing of accuracy, and their logits lie close together: differences are given in standard
deviations of the FP32 logits. What is shown is that each graph is exported, fused, packed and quantized right.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from quantize.checkpoint import Checkpoint, open_checkpoint
from quantize.config import QuantizeConfig
from quantize.graph import fused_counts
from quantize.parent import Layouts, export_parent, write_layouts
from quantize.precision import Material, Setting, prepare
from quantize.quiet import quiet
from quantize.session import Rows, run_in_batches
from quantize.speed import speeds
from quantize.verify import check_invariance
from testbed.machine import cpu_flags, describe, git_commit, versions
from testbed.records import write_atomically

LAYERS, WIDTH, HEADS, INNER = 6, 384, 12, 1536
SHAPE = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": INNER}
DISTIL = {"n_layers": LAYERS, "dim": WIDTH, "n_heads": HEADS, "hidden_dim": INNER}
# DeBERTa's published models set these; without them its attention knows no positions.
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 256, "share_att_key": True}
SHAPES: dict[str, dict[str, Any]] = {
    "bert": SHAPE,
    "distilbert": DISTIL,
    "roberta": SHAPE,
    "mpnet": SHAPE,
    "electra": SHAPE | {"embedding_size": 128},
    "deberta-v2": SHAPE | DEBERTA,
}
METHODS = ("int8", "int8-mixed", "int8-static-percentile", "int8-dynamic", "fp16")
LABELS = tuple(f"label {number}" for number in range(6))
VOCABULARY, LENGTH, NUM_TEXTS, FIRST_WORD = 30_522, 128, 40, 1000


def checkpoint_of(architecture: str, tokenizer: Path, folder: Path) -> Checkpoint:
    """Write a random checkpoint of real size and open it."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    names = dict(enumerate(LABELS))
    config = AutoConfig.for_model(
        architecture,
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH + 2,
        pad_token_id=0 if architecture not in {"roberta", "mpnet"} else 1,
        id2label=names,
        label2id={name: number for number, name in names.items()},
        **SHAPES[architecture],
    )
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    return open_checkpoint(folder, labels=LABELS, max_length=LENGTH)


def texts() -> Rows:
    """Return token ids of texts whose lengths spread from 3 to 64."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(3, 65, size=NUM_TEXTS)
    return [draw.integers(FIRST_WORD, VOCABULARY, size=length).tolist() for length in lengths]


def measure(architecture: str, tokenizer: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for FP32 and for each method."""
    rows, config = texts(), QuantizeConfig()
    with TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = checkpoint_of(architecture, tokenizer, folder / "checkpoint")
        with quiet():
            parent = export_parent(checkpoint, rows, bound=config.parity_bound)
        pad, spread = checkpoint.pad_token_id, float(parent.logits.std())
        material = Material(rows, parent.logits, pad)
        made: dict[str, Layouts] = {}
        found: dict[str, dict[str, Any]] = {}
        for method in ("fp32", *METHODS):
            setting = prepare(method, parent.padded, Setting(cpu_flags()), material)
            made[method] = layouts = write_layouts(
                method,
                parent,
                folder / method,
                setting=setting,
                pad_token_id=pad,
                external_from_bytes=config.external_data_bytes,
            )
            alone = run_in_batches(layouts.padded, rows, size=1)
            checks = check_invariance(
                layouts.padded, layouts.packed, rows, alone, num_texts=NUM_TEXTS, max_length=LENGTH
            )
            found[method] = {
                "architecture": architecture,
                "method": method,
                "size_bytes": layouts.files[0].stat().st_size,
                "packed": layouts.packed is not None,
                "fused": fused_counts(layouts.exported),
                "difference_in_spreads": float(np.abs(alone - parent.logits).max()) / spread,
                "invariance_in_spreads": {check.condition: check.max_logit_change / spread for check in checks},
                "flip_rate": max(check.flip_rate for check in checks),
            }
        padded = {method: layouts.padded for method, layouts in made.items()}
        packed = {method: layouts.packed for method, layouts in made.items() if layouts.packed is not None}
        for method, speed in speeds(padded, packed, rows, reference="fp32", rounds=rounds).items():
            yield found[method] | {"speed": speed.model_dump(mode="json")}


def line(row: dict[str, Any]) -> str:
    """Return a row of the Markdown table."""
    packed = row["speed"]["packed_ratio_to_fp32"]
    return (
        f"| {row['architecture']} | `{row['method']}` | {row['size_bytes'] / 1e6:.1f} "
        f"| {row['difference_in_spreads']:.2g} | {max(row['invariance_in_spreads'].values()):.2g} "
        f"| {row['flip_rate']:.1%} | {row['speed']['ratio_to_fp32']:.2f} "
        f"| {'no packed layout' if packed is None else f'{packed:.2f}'} |"
    )


def main() -> None:
    """Measure all, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, help="any tokenizer.json; the texts are drawn as ids")
    parser.add_argument("--architectures", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    document: dict[str, Any] = {
        "machine": describe().model_dump(mode="json"),
        "versions": versions(),
        "git_commit": git_commit(),
        "rows": [],
    }
    for architecture in options.architectures:
        for row in measure(architecture, options.tokenizer, options.rounds):
            document["rows"].append(row)
            print(line(row), flush=True)
        text = json.dumps(document, indent=1) + "\n"
        write_atomically(options.out, lambda path, text=text: path.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
