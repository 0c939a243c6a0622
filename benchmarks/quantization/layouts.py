"""Where the time goes: speed by layout and texts a batch, and operators by time, of one checkpoint's variants.

``python -m benchmarks.quantization.layouts RUN --model student --methods fp32 int8 int8-dynamic --out layouts.json``
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.quantization.systems import OWN_METHODS, ours, subjects
from quantize.session import Packed, Padded, Rows, Runner, cut, open_session
from testbed.machine import describe, git_commit, versions
from testbed.metrics import mean_interval
from testbed.records import write_atomically

SIZES = (1, 2, 4, 8, 16, 32)
NUM_TEXTS, ROUNDS, PROFILED_PASSES, SHOWN = 256, 7, 3, 14
Layout = tuple[str, str]


def seconds_per_text(runner: Runner, rows: Rows, size: int) -> float:
    """Return CPU seconds a text, one pass over the texts."""
    begin_s = time.thread_time()
    for piece in cut(rows, size):
        runner.run(piece)
    return (time.thread_time() - begin_s) / len(rows)


def operators_by_time(path: Path, layout: str, pad: int, rows: Rows, size: int) -> dict[str, float]:
    """Return operator to microseconds a text.

    Each node counts with its median over all batches, so that what else the machine does is left out.
    """
    with TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        runner = Packed(session) if layout == "packed" else Padded(session, pad_token_id=pad)
        for _ in range(PROFILED_PASSES):
            seconds_per_text(runner, rows, size)
        events = json.loads(Path(session.end_profiling()).read_text())
    micros: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            micros[event["args"]["op_name"], event["name"]].append(event["dur"])
    spent: Counter[str] = Counter()
    for (operator, _), found in micros.items():
        spent[operator] += float(np.median(found)) / size
    return dict(spent.most_common(SHOWN))


def speeds(runners: Mapping[Layout, Runner], rows: Rows) -> list[dict[str, Any]]:
    """Return a row for each method, layout and texts a batch; the rounds of all are interleaved."""
    found: list[dict[str, Any]] = []
    for size in SIZES:
        seconds: dict[Layout, list[float]] = {key: [] for key in runners}
        for _ in range(ROUNDS):
            for key, runner in runners.items():
                seconds[key].append(seconds_per_text(runner, rows, size))
        for (method, layout), some in seconds.items():
            interval = mean_interval([1 / one for one in some])
            row = {"method": method, "layout": layout, "texts_a_batch": size, "texts_per_s": float(1 / np.median(some))}
            found.append(row | {"low": interval.low, "high": interval.high})
    return found


def lines(methods: Sequence[str], rows: Sequence[dict[str, Any]], operators: dict[str, dict[str, float]]) -> list[str]:
    """Return the two Markdown tables: texts a second by texts a batch, and the operators."""
    text = [f"| method | layout | {' | '.join(map(str, SIZES))} |", f"|---|---|{'--:|' * len(SIZES)}"]
    for method in methods:
        for layout in ("padded", "packed"):
            some = [row["texts_per_s"] for row in rows if (row["method"], row["layout"]) == (method, layout)]
            text.append(f"| `{method}` | {layout} | {' | '.join(f'{one:.0f}' for one in some)} |")
    text += ["", "| graph | µs a text | operators |", "|---|--:|---|"]
    for name, spent in operators.items():
        words = ", ".join(f"{operator} {micros:.0f}" for operator, micros in spent.items() if micros >= 1)
        text.append(f"| {name} | {sum(spent.values()):.0f} | {words} |")
    return text


def main() -> None:
    """Make the variants, measure, write the JSON, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run: dataset and checkpoints")
    parser.add_argument("--model", default="student")
    parser.add_argument("--methods", nargs="+", default=OWN_METHODS, choices=OWN_METHODS)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    (subject,) = subjects(options.run, [options.model], options.max_length)
    rows, pad = subject.rows[:NUM_TEXTS], subject.checkpoint.pad_token_id
    runners: dict[Layout, Runner] = {}
    operators: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as name:
        for method, system in zip(options.methods, ours(subject, Path(name), options.methods), strict=True):
            runners[method, "padded"] = Padded(open_session(system.model), pad_token_id=pad)
            operators[f"{method}, alone"] = operators_by_time(system.model, "padded", pad, rows, 1)
            if system.packed is not None:
                runners[method, "packed"] = Packed(open_session(system.packed))
                operators[f"{method}, packed by 8"] = operators_by_time(system.packed, "packed", pad, rows, 8)
        table = speeds(runners, rows)
    document = {"machine": describe().model_dump(mode="json"), "versions": versions(), "git_commit": git_commit()}
    text = json.dumps(document | {"rows": table, "operators_us_per_text": operators}, indent=1) + "\n"
    write_atomically(options.out, lambda path: path.write_text(text, encoding="utf-8"))
    print(*lines(options.methods, table, operators), sep="\n")


if __name__ == "__main__":
    main()
