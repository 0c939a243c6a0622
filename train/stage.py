"""One training from a data set to a checkpoint folder: what a teacher's and a student's have in common."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import JsonValue

from testbed.allocator import freed_kept
from testbed.dataset import SPLITS, read_record, read_split
from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.metrics import accuracy
from testbed.progress import say
from testbed.records.dataset import DatasetRecord
from testbed.records.files import save
from testbed.records.training import TrainingRun
from testbed.tokenization import TextTokenizer
from train import disk, ledger, probe, sharding
from train.ceilings import gemm_flops_per_s, triad_bytes_per_s
from train.checkpoint import Checkpoints, Saved
from train.clocks import ClockWatch
from train.compiling import require_compiler
from train.config import Recipe, TrainConfig
from train.evaluate import logits_of
from train.feed import Feed, balanced_weights
from train.journal import Journal
from train.loop import Loop
from train.model import max_positions, shape_of
from train.objective import Objective
from train.outcome import Outcome, record_of, write_checkpoint
from train.phases import Phases, together
from train.precision import Precision, choose, tf32_products
from train.processes import Processes
from train.targets import Targets
from train.tokens import TokenFile, encode, write_tokens
from train.vocabulary import Vocabulary


@dataclass
class Stage:
    """The training of one model.

    Attributes:
        name: which of the two.
        recipe: its own section of the configuration.
        dataset: folder of the prepared data set.
        folder: where the checkpoint goes.
        model: to be trained, its head fitting the data set's labels.
        source: folder of the tokenizer that belongs to the model.
        initialised_from: as the record says it.
        parents: name to sha256 of what it is made from.
        make_targets: asks the teacher about the training split, for a student.
    """

    name: Literal["teacher", "student"]
    config: TrainConfig
    recipe: Recipe
    dataset: Path
    folder: Path
    processes: Processes
    phases: Phases
    model: Any
    source: Path
    initialised_from: str
    parents: dict[str, str]
    objective: Objective
    make_targets: Callable[[Stage, Precision], Targets | None] = lambda _stage, _precision: None
    slow_storage_s: float = 0.0
    record: DatasetRecord = field(init=False)
    tokens: dict[str, TokenFile] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.record = read_record(self.dataset)
        self.tokenizer = TextTokenizer(self.source / "tokenizer.json", max_length=self.max_length)
        self.attempts = self.folder.with_name(f".{self.folder.name}.training")
        self.work = self.attempts / self._fingerprint()[:16]
        self.shape = shape_of(self.model, num_labels=len(self.record.labels), max_length=self.max_length)

    @property
    def max_length(self) -> int:
        """Tokens of a text at most: the experiment's, or the model's where it has fewer positions."""
        return min(self.config.max_length, max_positions(self.model))

    @property
    def pad_token_id(self) -> int:
        """Of the model's own configuration; 0 where it names none."""
        return int(self.model.config.pad_token_id or 0)

    def run(self) -> TrainingRun:
        """Train, evaluate and save; returns the record, in every process.

        Raises:
            UserError: what was asked for cannot work here, cannot fit, or as `Loop.run`.
        """
        if self.config.compile:
            with self.phases.phase("compile"):
                require_compiler(self.processes.device)
        with disk.explained(self.folder), tf32_products(self.config.tf32, self.processes.device):
            return self._run()

    def _run(self) -> TrainingRun:
        checkpoints, saved = self._find_checkpoint()
        with self.phases.phase("tokenize"):
            vocabulary, num_truncated = self._tokenize()
            whole_embedding = vocabulary.shrink(self.model)
        with self.phases.phase("prepare"):
            self.model.to(self.processes.device)
            precision = self._precision(saved)
            gemm = sum(self.processes.total([gemm_flops_per_s(precision.name, self.processes.device)]))
        targets = self.make_targets(self, precision)
        with self.phases.phase("prepare"):
            feed = self._feed(targets)
            # First a forward and a backward pass: what they load and keep belongs to the base of the prediction.
            working = self.processes.working_dtype(precision.name)
            cost = probe.step_cost(self.model, self.processes.device, precision, working)
            triad = sum(self.processes.total([triad_bytes_per_s(self.processes.device)]))
            prediction, parallel = self._predict(feed, precision)
            loop = self._loop(checkpoints, feed, precision, gemm, cost, parallel)
        if saved:
            self.phases.go_on_from(saved.about.phases)
            say(f"train {self.name}: going on after step {saved.about.step} of {loop.total_steps}")
        with ClockWatch(self.processes.nvml_index) as clocks, freed_kept():
            loop.run(saved)
        self.model = loop.model
        with self.phases.phase("evaluate"):
            test_logits = self._test_logits()
        vocabulary.restore(self.model, whole_embedding)
        return self._finish(Outcome(loop, prediction, num_truncated, gemm, triad, clocks.events, test_logits))

    def evaluate_dev(self, precision: Precision) -> float:
        """Return the accuracy on the dev split, in the training's own precision."""
        dev = self.tokens["dev"]
        logits = logits_of(
            self.model, dev, pad_token_id=self.pad_token_id, device=self.processes.device, precision=precision
        )
        return accuracy(logits.argmax(axis=1), dev.labels).value

    def _tokenize(self) -> tuple[Vocabulary, int]:
        splits = {name: read_split(self.dataset, name) for name in SPLITS}
        encoded = {name: encode(split, self.tokenizer) for name, split in splits.items()}
        for name in SPLITS:
            self._check_texts(name, encoded[name])
        texts = [ids for name in SPLITS for ids in encoded[name]]
        vocabulary = Vocabulary(texts, pad_token_id=self.pad_token_id)
        if self.processes.local_rank == 0:
            for name in SPLITS:
                write_tokens(self.work / "tokens" / name, vocabulary.rows_of(encoded[name]), splits[name].labels)
        self.processes.wait()
        self.tokens = {name: TokenFile(self.work / "tokens" / name) for name in SPLITS}
        num_truncated = self.tokenizer.count_truncated(splits["train"].texts)
        if num_truncated and self.processes.main:
            say(
                f"train {self.name}: {num_truncated} training texts have more than {self.max_length} tokens and are cut"
            )
        return vocabulary, num_truncated

    def _check_texts(self, split: str, encoded: list[list[int]]) -> None:
        """Raise UserError for a split without texts, and for texts that the tokenizer makes nothing of."""
        empty = [str(line) for line, ids in enumerate(encoded, start=1) if not ids]
        where = f"{self.dataset / split}.jsonl"
        if not encoded:
            msg = f"{where}: no texts; help: prepare the data set again, from more rows"
            raise UserError(msg)
        if empty:
            msg = f"{where}: no token in the texts of lines {', '.join(empty[:20])} ({len(empty)} in all); help: "
            raise UserError(msg + "remove them, or take a tokenizer that adds special tokens")

    def _precision(self, saved: Saved | None) -> Precision:
        if saved:
            return Precision(saved.about.precision, saved.about.precision_reason)
        chosen = self.processes.from_main(
            choose(self.config.precision, self.processes.device) if self.processes.main else None
        )
        if self.processes.main:
            say(f"train {self.name}: {chosen.name}; {chosen.reason}")
        return chosen

    def _feed(self, targets: Targets | None) -> Feed:
        train = self.tokens["train"]
        balanced = self.recipe.class_weights == "balanced"
        return Feed(
            tokens=train,
            config=self.config,
            epochs=self.recipe.epochs,
            processes=self.processes,
            pad_token_id=self.pad_token_id,
            label_weights=balanced_weights(train.labels, len(self.record.labels)) if balanced else None,
            targets=targets,
            slow_storage_s=self.slow_storage_s,
        )

    def _predict(self, feed: Feed, precision: Precision) -> tuple[ledger.Prediction, sharding.Parallel]:
        """Return the prediction of the memory and how the processes share the model; refuse what cannot fit."""
        device, world_size = self.processes.device, self.processes.world_size
        available = ledger.available_bytes(device, processes_here=world_size // self.processes.num_nodes)
        batch = feed.largest_batch()
        kept = probe.saved_bytes(self.model, device, precision, self.processes.working_dtype(precision.name))
        prediction = ledger.predict(self.model, kept, device)
        chosen = sharding.choose(
            self.config.parallel, prediction, batch, world_size=world_size, available_bytes=available
        )
        # All processes must do the same, whatever each of them has free.
        parallel: sharding.Parallel = self.processes.from_main(chosen)
        if parallel == "fsdp":
            gathered = sharding.gathered_bytes(self.model)
            prediction = replace(prediction, num_shards=world_size, gathered_bytes=gathered)
        prediction.check(*batch, available_bytes=available)
        return prediction, parallel

    def _loop(
        self,
        checkpoints: Checkpoints,
        feed: Feed,
        precision: Precision,
        gemm: float,
        cost: probe.StepCost,
        parallel: sharding.Parallel,
    ) -> Loop:
        total_steps = feed.total_steps()
        events = self.work / "tensorboard" if self.processes.main else None
        return Loop(
            config=self.config,
            recipe=self.recipe,
            processes=self.processes,
            precision=precision,
            phases=self.phases,
            model=self.model,
            objective=self.objective,
            feed=feed,
            evaluate=lambda: self.evaluate_dev(precision),
            journal=Journal(f"train {self.name}", total_steps=total_steps, gemm_flops_per_s=gemm, events=events),
            checkpoints=checkpoints,
            cost=cost,
            parallel=parallel,
            total_steps=total_steps,
        )

    def _test_logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the test split's logits in FP32: what every exported variant is compared with."""
        with tf32_products(False, self.processes.device):
            return logits_of(
                self.model,
                self.tokens["test"],
                pad_token_id=self.pad_token_id,
                device=self.processes.device,
                precision=Precision("fp32", "evaluation"),
            )

    def _finish(self, outcome: Outcome) -> TrainingRun:
        record: TrainingRun | None = None
        self.phases.become(together(self.processes.gather((self.processes.local_rank, self.phases.so_far()))))
        if self.processes.main:
            with whole_folder(self.folder) as temporary:
                with self.phases.phase("save"):
                    files = write_checkpoint(self, outcome, temporary)
                record = record_of(self, outcome, files)
                save(record, temporary / "record.json")
        record = self.processes.from_main(record)
        if self.processes.local_rank == 0:
            shutil.rmtree(self.attempts, ignore_errors=True)
        return record

    def config_section(self) -> dict[str, JsonValue]:
        """Return the part of the configuration that this stage depends on."""
        section: dict[str, JsonValue] = self.config.model_dump(mode="json")
        section.pop("student" if self.name == "teacher" else "teacher")
        return section

    def _fingerprint(self) -> str:
        """Return a hash of all that decides the trained weights; a checkpoint of another one is not resumed."""
        decides = {
            "stage": self.name,
            "config": self.config_section(),
            "parents": self.parents,
            "dataset": {name: split.sha256 for name, split in self.record.splits.items()},
            "world_size": self.processes.world_size,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _find_checkpoint(self) -> tuple[Checkpoints, Saved | None]:
        if self.processes.local_rank == 0:
            for other in self.attempts.glob("*/"):
                if other != self.work:
                    say(f"train {self.name}: the configuration or the data has changed, an unfinished run is dropped")
                    shutil.rmtree(other)
        checkpoints = Checkpoints(self.work / "checkpoints")
        found = [checkpoints.latest() if self.processes.main else None]
        return checkpoints, self.processes.from_main(found)[0]
