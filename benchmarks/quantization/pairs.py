"""Two ways to run one variant, in turn, by texts a batch: a pair of figures and their ratio with an interval.

``python -m benchmarks.quantization.pairs denormals RUN --out FILE``: denormals computed, and flushed to zero.
``python -m benchmarks.quantization.pairs files RUN BEFORE --out FILE``: another packed file, then the bundle's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from quantize.session import Packed, Padded, Rows, cut, open_session
from testbed.bundle import Bundle
from testbed.dataset import read_split
from testbed.denormals import FlushedDenormals
from testbed.machine import describe, git_commit, versions
from testbed.metrics import mean_interval
from testbed.records import BundleManifest, Variant, file_sha256, write_atomically
from testbed.tokenization import TextTokenizer

SIZES, NUM_TEXTS, ROUNDS = (1, 4, 8, 16), 256, 9
Run = Annotated[Path, typer.Argument(help="folder of a run: dataset and bundle")]
Out = Annotated[Path, typer.Option(help="JSON file")]
VariantName = Annotated[str, typer.Option("--variant")]
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


class Way(NamedTuple):
    """One of the two: a graph, and the mode of the thread that runs it."""

    runner: Padded | Packed
    mode: type[AbstractContextManager[None]]

    def cpu_us(self, rows: Rows, size: int) -> float:
        """Return the CPU's microseconds a text of one pass."""
        feeds: list[dict[str, Any]] = [dict(self.runner.feed(piece)) for piece in cut(rows, size)]
        with self.mode():
            begin_s = time.thread_time()
            for feed in feeds:
                self.runner.session.run(["logits"], feed)
            return (time.thread_time() - begin_s) / len(rows) * 1e6


class Opened(NamedTuple):
    """A bundle's variant, and the test texts' token ids."""

    folder: Path
    manifest: BundleManifest
    variant: Variant
    rows: Rows


def opened(run: Path, name: str) -> Opened:
    """Open a run's bundle."""
    bundle = Bundle(run / "bundle")
    tokenizer = TextTokenizer(bundle.folder / bundle.manifest.tokenizer_file, max_length=bundle.manifest.max_length)
    rows = tokenizer.encode_batch(read_split(run / "dataset", "test").texts[:NUM_TEXTS])
    return Opened(bundle.folder, bundle.manifest, bundle.manifest.variant(name), rows)


def figures(layout: str, ways: Mapping[str, Way], rows: Rows) -> list[dict[str, Any]]:
    """Return for each size both ways' microseconds a text (medians), and the first's over the second's."""
    first, second = ways
    found = []
    for size in SIZES:
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                seen[name].append(way.cpu_us(rows, size))
        ratio = mean_interval([one / other for one, other in zip(seen[first], seen[second], strict=True)])
        medians = {f"{name}_us": float(np.median(some)) for name, some in seen.items()}
        interval = {"ratio_low": ratio.low, "ratio_high": ratio.high}
        found.append({"layout": layout, "texts_a_batch": size} | medians | interval)
    return found


@app.command()
def denormals(run: Run, *, out: Out, variant: VariantName = "student-int8") -> None:
    """Measure what masked slots cost with denormals."""
    bundle = opened(run, variant)
    padded = Padded(open_session(bundle.folder / bundle.variant.path), pad_token_id=bundle.manifest.pad_token_id)
    runners: dict[str, Padded | Packed] = {"padded": padded}
    if bundle.variant.packed_path:
        runners["packed"] = Packed(open_session(bundle.folder / bundle.variant.packed_path))
    rows = []
    for layout, runner in runners.items():
        ways = {"computed": Way(runner, nullcontext), "flushed": Way(runner, FlushedDenormals)}
        rows += figures(layout, ways, bundle.rows)
    save(out, rows, bundle.variant.files)


@app.command()
def files(
    run: Run, before: Annotated[Path, typer.Argument()], *, out: Out, variant: VariantName = "student-int8"
) -> None:
    """Measure another packed file of the same weights before the bundle's."""
    bundle = opened(run, variant)
    assert bundle.variant.packed_path is not None, "the variant has a packed layout"
    pair = {"before": before, "after": bundle.folder / bundle.variant.packed_path}
    ways = {name: Way(Packed(open_session(path)), FlushedDenormals) for name, path in pair.items()}
    save(out, figures("packed", ways, bundle.rows), {name: file_sha256(path) for name, path in pair.items()})


def save(out: Path, rows: list[dict[str, Any]], sha256: Mapping[str, str]) -> None:
    """Write the JSON and print the table."""
    record = {
        "machine": describe().model_dump(mode="json"),
        "versions": versions(),
        "git_commit": git_commit(),
        "sha256": dict(sha256),
        "figures": rows,
    }
    write_atomically(out, lambda path: path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8"))
    names = [name for name in rows[0] if name.endswith("_us")]
    print(f"| layout | texts a batch | {' | '.join(names)} | ratio |\n|---|--:|--:|--:|--:|")
    for row in rows:
        micros = " | ".join(f"{row[name]:.0f}" for name in names)
        ratio = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
        print(f"| {row['layout']} | {row['texts_a_batch']} | {micros} | {ratio} |")


if __name__ == "__main__":
    app()
