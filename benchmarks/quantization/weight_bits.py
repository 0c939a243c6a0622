"""Do weights have to spare a bit on this CPU? Each INT8 method with 7 and with 8 bits against FP32, on the test split.

``python -m benchmarks.quantization.weight_bits STUDENT --dataset DATASET --out weight_bits.json`` asks the CPU at hand;
put ``-m benchmarks.quantization.masked_cpu`` before the module's name to ask one that ends at AVX2.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from quantize.checkpoint import open_checkpoint
from quantize.config import QuantizeConfig
from quantize.parent import Parent, export_parent, write_layouts
from quantize.precision import Material, Setting, prepare, sums_saturate
from quantize.session import Rows, run_in_batches
from quantize.verify import PACKED_TEXTS, compare
from testbed.dataset import read_record, read_split
from testbed.machine import cpu_flags, describe, git_commit, versions
from testbed.records import write_atomically

METHODS = ("int8", "int8-mixed", "int8-static", "int8-static-percentile", "int8-static-entropy", "int8-dynamic")
# The flags decide how many bits a weight gets; the CPU at hand computes with both.
BITS = {7: frozenset({"avx2"}), 8: frozenset({"avx2", "avx512_vnni"})}
MATES, CALIBRATION_TEXTS, EXTERNAL_FROM_BYTES = 8, 256, 1_500_000_000


def measure(
    methods: list[str], parent: Parent, material: Material, rows: Rows, labels: list[int]
) -> Iterator[dict[str, Any]]:
    """Yield one row of figures for each method and number of bits.

    Args:
        methods: INT8 methods.
        parent: FP32, both layouts.
        material: training texts for the methods that calibrate.
        rows: token ids of the test split.
        labels: the true ones.
    """
    for method in methods:
        for bits, flags in BITS.items():
            setting = prepare(method, parent.padded, Setting(flags), material)
            with TemporaryDirectory() as folder:
                layouts = write_layouts(
                    method,
                    parent,
                    Path(folder) / method,
                    setting=setting,
                    pad_token_id=material.pad_token_id,
                    external_from_bytes=EXTERNAL_FROM_BYTES,
                )
                alone = run_in_batches(layouts.padded, rows, size=1)
                mates = run_in_batches(layouts.padded, rows, size=MATES)
                packed = None if layouts.packed is None else run_in_batches(layouts.packed, rows, size=PACKED_TEXTS)
            found = compare(alone, labels=labels, parent="fp32", parent_logits=parent.logits)
            assert found is not None, "FP32 keeps INT8 logits finite"
            yield {
                "method": method,
                "weight_bits": bits,
                "accuracy": found.accuracy.value,
                "accuracy_difference": found.accuracy_difference,
                "difference_lower_bound": found.difference_lower_bound,
                "agreement": found.agreement,
                "max_logit_difference": found.max_logit_difference,
                "mean_logit_difference": float(np.abs(alone - parent.logits).mean()),
                "flip_rate_in_batches": float((alone.argmax(1) != mates.argmax(1)).mean()),
                "logit_change_in_batches": float(np.abs(alone - mates).max()),
                "flip_rate_packed": None if packed is None else float((alone.argmax(1) != packed.argmax(1)).mean()),
                "logit_change_packed": None if packed is None else float(np.abs(alone - packed).max()),
            }


def main() -> None:
    """Make and measure all, write the JSON, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    labels = read_record(options.dataset).labels
    checkpoint = open_checkpoint(options.checkpoint, labels=labels, max_length=options.max_length)
    test, train = (read_split(options.dataset, split) for split in ("test", "train"))
    rows = checkpoint.tokenizer.encode_batch(test.texts)
    parent = export_parent(checkpoint, rows, bound=QuantizeConfig().parity_bound)
    seen = checkpoint.tokenizer.encode_batch(train.texts[:CALIBRATION_TEXTS])
    material = Material(seen, np.empty((0, len(labels)), dtype=np.float32), checkpoint.pad_token_id)
    table = list(measure(options.methods, parent, material, rows, test.labels))
    document = {
        "machine": describe().model_dump(),
        "versions": versions(),
        "git_commit": git_commit(),
        "chosen_weight_bits": 7 if sums_saturate(cpu_flags()) else 8,
        "rows": table,
    }
    text = json.dumps(document, indent=1) + "\n"
    write_atomically(options.out, lambda path: path.write_text(text, encoding="utf-8"))
    for row in table:
        print(
            f"| `{row['method']}` | {row['weight_bits']} | {row['accuracy']:.4f} "
            f"| {100 * row['accuracy_difference']:+.2f} ({100 * row['difference_lower_bound']:+.2f}) "
            f"| {row['max_logit_difference']:.2f}, {row['mean_logit_difference']:.3f} "
            f"| {row['flip_rate_in_batches']:.2%}, {row['logit_change_in_batches']:.2g} |"
        )


if __name__ == "__main__":
    main()
