"""What a training leaves: the checkpoint folder and its record."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from testbed.machine import provenance
from testbed.metrics import accuracy
from testbed.records.files import file_sha256
from testbed.records.training import ClockEvents, TrainingRun
from train.ledger import Prediction
from train.loop import Loop
from train.roofline import place

if TYPE_CHECKING:
    from train.stage import Stage

TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class Outcome:
    """A training that has ended.

    Attributes:
        loop: holds the steps, the epochs and the trained model.
        prediction: of its memory.
        num_truncated: training texts that were cut.
        gemm_flops_per_s: measured peak of all processes together.
        triad_bytes_per_s: measured bandwidth of all processes together.
        clock_events: of the main process's GPU while it trained.
        test_logits: float32 [texts, labels], of the test split.
    """

    loop: Loop
    prediction: Prediction
    num_truncated: int
    gemm_flops_per_s: float
    triad_bytes_per_s: float
    clock_events: ClockEvents
    test_logits: NDArray[np.float32]


def write_checkpoint(stage: Stage, outcome: Outcome, target: Path) -> dict[str, str]:
    """Write everything but the record into ``target``; returns file name to sha256."""
    stage.model.save_pretrained(target, safe_serialization=True)
    write_tokenizer(stage.source, target, max_length=stage.max_length)
    np.save(target / "test_logits.npy", outcome.test_logits)
    outcome.loop.journal.write(target / "steps.parquet")
    shutil.copytree(stage.work / "tensorboard", target / "tensorboard")
    return {path.name: file_sha256(path) for path in sorted(target.iterdir()) if path.is_file()}


def record_of(stage: Stage, outcome: Outcome, files: dict[str, str]) -> TrainingRun:
    """Return the record; ``files`` are those of the checkpoint folder."""
    loop = outcome.loop
    rows = loop.journal.rows
    phases = stage.phases.so_far()
    train_s = phases["train"].wall_s
    num_samples = sum(row["num_texts"] for row in rows)
    num_tokens = sum(row["num_tokens"] for row in rows)
    model_flops = sum(row["model_flops"] for row in rows)
    on_gpu = stage.processes.device.type == "cuda"
    peak = phases["train"].peak_device_bytes if on_gpu else phases["train"].peak_rss_bytes
    return TrainingRun(
        **provenance(stage.config_section(), stage.parents | {"dataset": file_sha256(stage.dataset / "record.json")}),
        stage=stage.name,
        initialised_from=stage.initialised_from,
        model=stage.shape,
        seed=stage.config.seed,
        usage=stage.phases.total(),
        phases=phases,
        dtype=loop.precision.name,
        dtype_reason=loop.precision.reason,
        num_steps=len(rows),
        num_samples=num_samples,
        num_tokens=num_tokens,
        num_padded_tokens=sum(row["num_padded_tokens"] for row in rows),
        num_truncated=outcome.num_truncated,
        samples_per_s=num_samples / train_s,
        tokens_per_s=num_tokens / train_s,
        model_flops=model_flops,
        gemm_flops_per_s=outcome.gemm_flops_per_s,
        mfu=model_flops / (train_s * outcome.gemm_flops_per_s),
        step_split=loop.journal.split(),
        memory=outcome.prediction.ledger(*loop.feed.largest_batch(), measured_peak_bytes=peak),
        epochs=tuple(loop.epochs),
        accuracy=accuracy(outcome.test_logits.argmax(axis=1), stage.tokens["test"].labels),
        checkpoint=files,
        num_processes=stage.processes.world_size,
        clock_events=outcome.clock_events,
        num_nodes=stage.processes.num_nodes,
        parallel=loop.parallel,
        roofline=place(
            [row for row in rows if row["forward_s"] is not None],
            loop.cost,
            num_parameters=outcome.prediction.parameters_bytes // 4,
            num_narrow=sum(p.numel() for p, trained in loop.weights.trained.items() if trained is not p),
            num_processes=stage.processes.world_size,
            gemm=outcome.gemm_flops_per_s,
            triad=outcome.triad_bytes_per_s,
        ),
        resumed_from_step=loop.resumed_from_step,
        switches={
            "threads": torch.get_num_threads(),
            "compile": stage.config.compile,
            "tf32": stage.config.tf32 and on_gpu,
        },
    )


def write_tokenizer(source: Path, target: Path, *, max_length: int) -> None:
    """Copy a fast tokenizer without padding and cut at ``max_length``, whatever its file had hard-coded."""
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    tokenizer.save(str(target / "tokenizer.json"))
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
