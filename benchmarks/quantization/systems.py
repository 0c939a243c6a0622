"""Makes the systems of one comparison: our variants of a checkpoint, and the peers' by their defaults."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quantize.checkpoint import Checkpoint, open_checkpoint
from quantize.config import METHODS, QuantizeConfig
from quantize.graph import save_graph
from quantize.parent import Parent, export_parent, export_proven, write_layouts
from quantize.precision import Material, Setting, prepare
from quantize.recipe import AUTO
from quantize.session import Padded, Rows, open_session, run_in_batches
from testbed.dataset import read_record, read_split
from testbed.machine import cpu_flags

HERE = Path(__file__).parent


@dataclass(frozen=True)
class System:
    """One model under one runtime.

    Attributes:
        name: in the table.
        runtime: ``onnxruntime`` or ``openvino``.
        python: the interpreter that has it.
        model: file of the padded layout.
        packed: of the packed one, or None.
    """

    name: str
    runtime: str
    python: str
    model: Path
    packed: Path | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the padded file and of the weights beside it."""
        return sum(path.stat().st_size for path in (self.model, self.model.with_suffix(".bin")) if path.is_file())


@dataclass(frozen=True)
class Subject:
    """A checkpoint, the texts that judge its systems, and the texts that calibrate them.

    Attributes:
        name: ``<run>/<teacher or student>``.
        checkpoint: opened.
        rows: token ids of the test split.
        labels: the true ones.
        calibration: token ids of training texts.
    """

    name: str
    checkpoint: Checkpoint
    rows: Rows
    labels: list[int]
    calibration: Rows


def subjects(run: Path, models: list[str], max_length: int | None) -> Iterator[Subject]:
    """Yield the checkpoints of a run's folder."""
    labels = read_record(run / "dataset").labels
    test, train = read_split(run / "dataset", "test"), read_split(run / "dataset", "train")
    for model in models:
        checkpoint = open_checkpoint(run / model, labels=labels, max_length=max_length)
        encode = checkpoint.tokenizer.encode_batch
        calibration = encode(train.texts[: QuantizeConfig().calibration_texts])
        yield Subject(f"{run.name}/{model}", checkpoint, encode(test.texts), test.labels, calibration)


# The search's choice is one of the others.
OWN_METHODS = tuple(method for method in METHODS if method != AUTO)


def ours(subject: Subject, folder: Path, methods: Sequence[str] = OWN_METHODS) -> Iterator[System]:
    """Yield the variant of each method, made as the product makes it for this CPU's flags."""
    config, pad = QuantizeConfig(), subject.checkpoint.pad_token_id
    parent = export_parent(subject.checkpoint, subject.rows, bound=config.parity_bound)
    material = _material(parent, subject, folder)
    for method in methods:
        setting = prepare(method, parent.padded, Setting(cpu_flags()), material)
        layouts = write_layouts(
            method,
            parent,
            folder / method,
            setting=setting,
            pad_token_id=pad,
            external_from_bytes=config.external_data_bytes,
        )
        yield System(f"breakeven {method}", "onnxruntime", sys.executable, layouts.files[0], layouts.packed_path)


def _material(parent: Parent, subject: Subject, folder: Path) -> Material:
    path, pad = folder / "reference.onnx", subject.checkpoint.pad_token_id
    save_graph(parent.padded, path, external_from_bytes=QuantizeConfig().external_data_bytes)
    logits = run_in_batches(Padded(open_session(path), pad_token_id=pad), subject.calibration, size=1)
    return Material(subject.calibration, np.asarray(logits), pad)


def peers(subject: Subject, folder: Path, options: argparse.Namespace) -> Iterator[System]:
    """Make the peers' files and yield their systems; one whose interpreter is not given is left out."""

    def run(python: str, script: str, *arguments: object) -> None:
        subprocess.run([python, str(HERE / "peers" / script), *map(str, arguments)], check=True, stdout=sys.stderr)

    own, checkpoint, pad = sys.executable, subject.checkpoint, subject.checkpoint.pad_token_id
    for preset in ("avx2", "avx512_vnni"):
        run(own, "optimum_defaults.py", checkpoint.folder, folder / f"{preset}.onnx", preset)
        yield System(f"optimum {preset}", "onnxruntime", own, folder / f"{preset}.onnx")
    fp32, calibration = folder / "export.onnx", folder / "calibration.json"
    export_proven(checkpoint, subject.rows, fp32, bound=QuantizeConfig().parity_bound)
    calibration.write_text(json.dumps([list(row) for row in subject.calibration]))
    if options.openvino:
        run(options.openvino, "openvino_fp32.py", fp32, folder / "ov.xml")
        yield System("OpenVINO fp32", "openvino", options.openvino, folder / "ov.xml")
        run(options.openvino, "nncf_static.py", fp32, calibration, folder / "nncf.xml", pad)
        yield System("OpenVINO, NNCF int8", "openvino", options.openvino, folder / "nncf.xml")
    if options.olive:
        shape = checkpoint.model.config
        run(
            options.olive, "olive_dynamic.py", fp32, folder / "olive.onnx", shape.num_attention_heads, shape.hidden_size
        )
        yield System("Olive int8", "onnxruntime", own, folder / "olive.onnx")
