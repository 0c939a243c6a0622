"""Our variants and the peers' of several checkpoints: accuracy, size, single-thread speed, invariance, in one run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantization.systems import HERE, Subject, System, ours, peers, subjects
from testbed.machine import describe, git_commit, versions
from testbed.metrics import accuracy, mean_interval, paired_difference
from testbed.records import write_atomically

TEXTS_A_ROUND, TOGETHER = 32, 8
MATES = (8, 32)
ONE_SIDED = 0.90
Seconds = NDArray[np.float64]


class Worker:
    """A system's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read()

    def ask(self, **command: str | int) -> Any:  # noqa: ANN401 - logits or seconds, by the command
        """Send one command and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._read()["answer"]

    def logits(self, size: int, *, packed: bool = False) -> NDArray[np.float64]:
        """Return the logits of all texts in batches of ``size``, [texts, labels]."""
        return np.array(self.ask(do="packed" if packed else "logits", size=size))

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def started(system: System, rows: Path, pad: int) -> Iterator[Worker]:
    """Start a system's worker and end it afterwards."""
    command = [system.python, str(HERE / "worker.py"), system.runtime, str(system.model), str(rows), "--pad", str(pad)]
    if system.packed is not None:
        command += ["--packed", str(system.packed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Worker(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def interleaved(workers: Sequence[Worker], num_texts: int, *, rounds: int, size: int) -> Seconds:
    """Return CPU seconds a text, [systems, rounds]: all take the same texts in turn; a first round does not count."""
    seconds = np.zeros((len(workers), rounds + 1))
    for number in range(rounds + 1):
        begin = number * TEXTS_A_ROUND % max(1, num_texts - TEXTS_A_ROUND)
        for index in np.roll(np.arange(len(workers)), number).tolist():
            seconds[index, number] = workers[index].ask(
                do="time", size=size, **{"from": begin, "to": begin + TEXTS_A_ROUND}
            )
    return seconds[:, 1:]


def quality(system: System, worker: Worker, reference: NDArray[np.float64], truth: NDArray[np.int64]) -> dict[str, Any]:
    """Return accuracy against the reference's logits, and how far answers depend on batch-mates."""
    alone = worker.logits(1)
    changed = {f"batch of {size}": worker.logits(size) for size in MATES}
    if system.packed is not None:
        changed[f"packed by {TOGETHER}"] = worker.logits(TOGETHER, packed=True)
    answers = alone.argmax(axis=1)
    right, reference_right = answers == truth, reference.argmax(axis=1) == truth
    own = accuracy(answers, truth)
    difference, interval = paired_difference(right, reference_right)
    _, one_sided = paired_difference(right, reference_right, level=ONE_SIDED)
    return {
        "accuracy": own.value,
        "accuracy_interval": [own.interval.low, own.interval.high],
        "accuracy_difference": difference,
        "difference_interval": [interval.low, interval.high],
        "difference_lower_bound": one_sided.low,
        "max_logit_difference": float(np.abs(alone - reference).max()),
        "flip_rate": {name: float((found.argmax(axis=1) != answers).mean()) for name, found in changed.items()},
        "logit_change": {name: float(np.abs(found - alone).max()) for name, found in changed.items()},
    }


def ratios(seconds: Seconds, peer_places: Sequence[int]) -> list[dict[str, Any]]:
    """Return each system's speed, and its ratio to FP32 (the first) and to the fastest peer, with 95 % intervals."""
    fastest = min(peer_places, key=lambda place: float(np.median(seconds[place])), default=None)

    def ratio(base: int, place: int) -> list[float]:
        found = (seconds[base] / seconds[place]).tolist()
        interval = mean_interval(found)
        return [float(np.mean(found)), interval.low, interval.high]

    return [
        {
            "texts_per_s": float(1 / np.median(seconds[place])),
            "ratio_to_fp32": ratio(0, place),
            "ratio_to_fastest_peer": None if fastest is None else ratio(fastest, place),
        }
        for place in range(len(seconds))
    ]


def measure(subject: Subject, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row of figures for each system of one checkpoint."""
    truth = np.array(subject.labels)
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        rows = folder / "rows.json"
        rows.write_text(json.dumps([list(row) for row in subject.rows]))
        systems = list(ours(subject, folder))
        others = list(peers(subject, folder, options))
        places = range(len(systems), len(systems) + len(others))
        systems += others
        pad = subject.checkpoint.pad_token_id
        workers = [stack.enter_context(started(system, rows, pad)) for system in systems]
        reference = workers[0].logits(1)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # answers do not depend on the load
            found = list(pool.map(lambda pair: quality(*pair, reference, truth), zip(systems, workers, strict=True)))
        speeds = {
            label: ratios(interleaved(workers, len(truth), rounds=options.rounds, size=size), places)
            for label, size in (("alone", 1), ("together", TOGETHER))
        }
        return [
            {"system": system.name, "size_bytes": system.size_bytes, **found[place]}
            | {label: speed[place] for label, speed in speeds.items()}
            for place, system in enumerate(systems)
        ]


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the Markdown table of one checkpoint."""
    yield (
        "| system | MB | accuracy | difference (bound), points | logits off | mates | texts/s alone | × FP32 "
        "| × fastest peer | 8 together | × FP32 | × fastest peer |"
    )
    yield "|---|--:|---|---|--:|---|--:|---|---|--:|---|---|"
    for row in rows:
        low, high = row["accuracy_interval"]
        yield (
            f"| {row['system']} | {row['size_bytes'] / 1e6:.1f} | {row['accuracy']:.4f} [{low:.3f}, {high:.3f}] "
            f"| {100 * row['accuracy_difference']:+.2f} ({100 * row['difference_lower_bound']:+.2f}) "
            f"| {row['max_logit_difference']:.2g} "
            f"| {max(row['flip_rate'].values()):.2%}, {max(row['logit_change'].values()):.2g} "
            f"| {_speed(row['alone'])} | {_speed(row['together'])} |"
        )


def _speed(speed: dict[str, Any]) -> str:
    def words(ratio: list[float] | None) -> str:
        return "" if ratio is None else f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"

    return f"{speed['texts_per_s']:.0f} | {words(speed['ratio_to_fp32'])} | {words(speed['ratio_to_fastest_peer'])}"


def page(document: dict[str, Any]) -> str:
    """Return the tables of a comparison as a Markdown page."""
    machine = document["machine"]
    text = [
        f"# {machine['cpu_model']}: {document['rounds']} interleaved rounds of {TEXTS_A_ROUND} texts, one thread",
        "",
        "Brackets are 95 % intervals; `bound` is the one-sided 95 % bound of the paired accuracy difference from FP32;",
        f"`mates` the share of labels, and the largest logit change, between a text alone and among {MATES[0]} or",
        f"{MATES[1]} padded or {TOGETHER} packed; speeds are texts a second of CPU time, alone and {TOGETHER} together",
        "(packed where a system has that layout, padded to the longest elsewhere).",
    ]
    for name, rows in document["checkpoints"].items():
        text += ["", f"## {name}", "", *table(rows)]
    return "\n".join(text) + "\n"


def write(path: Path, text: str) -> None:
    """Write a file in one step."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def main() -> None:
    """Make everybody's models, measure everything, write the JSON and a page of tables beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs: dataset and checkpoints")
    parser.add_argument("--models", nargs="+", default=["student", "teacher"])
    parser.add_argument("--openvino", help="interpreter with openvino and nncf")
    parser.add_argument("--olive", help="interpreter with olive-ai")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    document: dict[str, Any] = {
        "machine": describe().model_dump(mode="json"),
        "versions": versions(),
        "git_commit": git_commit(),
        "rounds": options.rounds,
        "checkpoints": {},
    }
    for run in options.runs:
        for subject in subjects(run, options.models, options.max_length):
            rows = measure(subject, options)
            document["checkpoints"][subject.name] = rows
            print(f"\n### {subject.name}\n", *table(rows), sep="\n", flush=True)
            write(options.out, json.dumps(document, indent=1) + "\n")
            write(options.out.with_suffix(".md"), page(document))


if __name__ == "__main__":
    main()
