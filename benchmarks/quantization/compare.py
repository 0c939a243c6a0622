"""Our variants and the peers' of one checkpoint: accuracy, size, single-thread speed, invariance, in one run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from quantize.build import export_checkpoints
from quantize.config import QuantizeConfig
from testbed.bundle import Bundle
from testbed.dataset import read_split
from testbed.machine import describe, git_commit, versions
from testbed.metrics import accuracy, bootstrap_mean, paired_difference
from testbed.records import write_atomically

HERE = Path(__file__).parent
TEXTS_A_ROUND = 32
ONE_SIDED = 0.90


@dataclass(frozen=True)
class System:
    """One model file under one runtime."""

    name: str
    runtime: str
    python: str
    model: Path

    @property
    def size_bytes(self) -> int:
        """Bytes of the file and of the weights beside it."""
        return sum(path.stat().st_size for path in (self.model, self.model.with_suffix(".bin")) if path.is_file())


class Worker:
    """A system's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    def ask(self, **command: str | int) -> dict[str, Any]:
        """Send one command and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def started(system: System, rows: Path, pad: int) -> Iterator[Worker]:
    """Start a system's worker and end it afterwards."""
    command = [system.python, str(HERE / "worker.py"), system.runtime, str(system.model), str(rows), "--pad", str(pad)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Worker(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def peers(options: argparse.Namespace, folder: Path, calibration: Path, pad: int) -> Iterator[System]:
    """Make the peers' files and yield their systems."""

    def run(python: str, script: str, *arguments: object) -> None:
        subprocess.run([python, str(HERE / "peers" / script), *map(str, arguments)], check=True, stdout=sys.stderr)

    own = sys.executable
    for preset in ("avx2", "avx512_vnni"):
        run(own, "optimum_defaults.py", options.checkpoint, folder / f"{preset}.onnx", preset)
        yield System(f"optimum {preset}", "onnxruntime", own, folder / f"{preset}.onnx")
    config = QuantizeConfig(max_length=options.max_length)
    checkpoints = {"student": options.checkpoint}
    export_checkpoints(config, dataset=options.dataset, checkpoints=checkpoints, folder=folder / "fp32")
    fp32 = folder / "fp32" / "student.onnx"
    if options.openvino:
        run(options.openvino, "openvino_fp32.py", fp32, folder / "ov.xml")
        yield System("OpenVINO fp32", "openvino", options.openvino, folder / "ov.xml")
        run(options.openvino, "nncf_static.py", fp32, calibration, folder / "nncf.xml", pad)
        yield System("OpenVINO, NNCF int8", "openvino", options.openvino, folder / "nncf.xml")
    if options.olive:
        shape = json.loads((options.checkpoint / "config.json").read_text())
        heads, width = shape["num_attention_heads"], shape["hidden_size"]
        run(options.olive, "olive_dynamic.py", fp32, folder / "olive.onnx", heads, width)
        yield System("Olive int8", "onnxruntime", own, folder / "olive.onnx")


def measure(
    systems: Sequence[System], workers: Sequence[Worker], labels: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """Return one row of figures for each system; the first one is the reference of every ratio and difference."""
    truth = np.array(labels)
    alone = [np.array(worker.ask(do="logits", size=1)["logits"]) for worker in workers]
    batched = [np.array(worker.ask(do="logits", size=8)["logits"]) for worker in workers]
    seconds: list[list[float]] = [[] for _ in systems]
    for number in range(rounds + 1):
        begin = number * TEXTS_A_ROUND % max(1, len(labels) - TEXTS_A_ROUND)
        for index in np.roll(np.arange(len(systems)), number):
            answer = workers[index].ask(do="time", **{"from": begin, "to": begin + TEXTS_A_ROUND})
            if number:
                seconds[index].append(answer["seconds"])
    reference_right = alone[0].argmax(axis=1) == truth
    rows = []
    for index, system in enumerate(systems):
        ratios = (np.array(seconds[0]) / np.array(seconds[index])).tolist()
        right = alone[index].argmax(axis=1) == truth
        difference, _ = paired_difference(right, reference_right)
        _, one_sided = paired_difference(right, reference_right, level=ONE_SIDED)
        interval = bootstrap_mean(ratios)
        rows.append(
            {
                "system": system.name,
                "runtime": system.runtime,
                "size_bytes": system.size_bytes,
                "accuracy": accuracy(alone[index].argmax(axis=1), truth).value,
                "accuracy_difference": difference,
                "difference_lower_bound": one_sided.low,
                "max_logit_difference": float(np.abs(alone[index] - alone[0]).max()),
                "batch_flip_rate": float((alone[index].argmax(axis=1) != batched[index].argmax(axis=1)).mean()),
                "batch_max_logit_change": float(np.abs(alone[index] - batched[index]).max()),
                "texts_per_s": float(1 / np.median(seconds[index])),
                "ratio_to_fp32": float(np.mean(ratios)),
                "ratio_low": interval.low,
                "ratio_high": interval.high,
            }
        )
    return rows


def main() -> None:
    """Make the peers' models, measure everything, write the JSON and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--model", default="student", help="whose variants of the bundle")
    parser.add_argument("--openvino", help="interpreter with openvino and nncf")
    parser.add_argument("--olive", help="interpreter with olive-ai")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    bundle = Bundle(options.bundle)
    ours = [variant for variant in bundle.manifest.variants if variant.model == options.model]
    ours.sort(key=lambda variant: variant.precision != "fp32")
    tokenizer, pad = bundle.tokenizer(ours[0]), bundle.pad_token_id(ours[0])
    test, train = read_split(options.dataset, "test"), read_split(options.dataset, "train")
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        rows, calibration = folder / "rows.json", folder / "calibration.json"
        rows.write_text(json.dumps(tokenizer.encode_batch(test.texts)))
        calibration.write_text(json.dumps(tokenizer.encode_batch(train.texts[:256])))
        systems = [
            System(f"breakeven {one.name}", "onnxruntime", sys.executable, bundle.model_file(one)) for one in ours
        ]
        systems += peers(options, folder, calibration, pad)
        workers = [stack.enter_context(started(system, rows, pad)) for system in systems]
        table = measure(systems, workers, test.labels, options.rounds)
    document = {"machine": describe().model_dump(), "versions": versions(), "git_commit": git_commit(), "rows": table}
    text = json.dumps(document, indent=1, default=str) + "\n"
    write_atomically(options.out, lambda path: path.write_text(text, encoding="utf-8"))
    for row in table:
        print(
            f"{row['system']:<40} {row['size_bytes'] / 1e6:6.1f} MB  accuracy {row['accuracy']:.4f} "
            f"({100 * row['accuracy_difference']:+.2f})  logits off {row['max_logit_difference']:.3f}, "
            f"by mates {row['batch_max_logit_change']:.3f} ({row['batch_flip_rate']:.1%})  "
            f"{row['texts_per_s']:6.0f} texts/s  {row['ratio_to_fp32']:.2f} × FP32"
        )


if __name__ == "__main__":
    main()
