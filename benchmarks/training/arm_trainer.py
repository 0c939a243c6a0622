"""The peer: the same training by `transformers.Trainer` with its defaults; prints one JSON line for compare.py."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from testbed.dataset import Split, read_record, read_split
from train.pretrained import model_folder


class Texts(Dataset[dict[str, Any]]):
    """A split as the Trainer takes it: token ids without padding; the collator pads each batch."""

    def __init__(self, split: Split, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        self.encoded = tokenizer(split.texts, truncation=True, max_length=max_length)["input_ids"]
        self.labels = split.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.encoded[index], "labels": self.labels[index]}


class CountingCollator(DataCollatorWithPadding):
    """The default collator, with its padded tokens counted."""

    padded_tokens = 0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the padded batch."""
        batch = super().__call__(features)
        if torch.is_grad_enabled():
            self.padded_tokens += batch["input_ids"].numel()
        return batch


class Stopwatch(TrainerCallback):
    """Seconds of the training steps alone: stopped while the dev split is evaluated after each epoch."""

    def __init__(self, evaluate: Callable[[], float]) -> None:
        self.evaluate = evaluate
        self.wall_s = self.cpu_s = 0.0
        self.epochs: list[dict[str, float]] = []

    def on_epoch_begin(self, *_: object, **__: object) -> None:
        """Start."""
        self.begin = (time.monotonic(), time.process_time())

    def on_epoch_end(self, *_: object, **__: object) -> None:
        """Stop, then evaluate."""
        self.wall_s += time.monotonic() - self.begin[0]
        self.cpu_s += time.process_time() - self.begin[1]
        self.epochs.append({"end_s": self.wall_s, "dev_accuracy": self.evaluate()})


def main() -> None:
    """Train with the job that compare.py gives as JSON."""
    job = json.loads(sys.argv[1])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(job["seed"])
    folder, dataset = model_folder(job["model"]), Path(job["dataset"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    splits = {name: Texts(read_split(dataset, name), tokenizer, job["max_length"]) for name in ("train", "dev", "test")}
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(read_record(dataset).labels))
    collator = CountingCollator(tokenizer)
    with tempfile.TemporaryDirectory() as temporary:
        arguments = TrainingArguments(
            output_dir=temporary,
            num_train_epochs=job["epochs"],
            per_device_train_batch_size=job["batch_size"],
            per_device_eval_batch_size=64,
            learning_rate=job["learning_rate"],
            warmup_ratio=job["warmup_share"],
            weight_decay=job["weight_decay"],
            bf16=job["dtype"] == "bf16",
            use_cpu=True,
            seed=job["seed"],
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=splits["train"], data_collator=collator)

        def right(name: str) -> int:
            predicted = trainer.predict(splits[name]).predictions.argmax(axis=1)
            return int((predicted == splits[name].labels).sum())

        watch = Stopwatch(lambda: right("dev") / len(splits["dev"]))
        trainer.add_callback(watch)
        trainer.train()
        num_samples = job["epochs"] * len(splits["train"])
        result = {
            "num_samples": num_samples,
            "padded_tokens_per_text": collator.padded_tokens / num_samples,
            "wall_s": watch.wall_s,
            "cpu_s": watch.cpu_s,
            "test_right": right("test"),
            "test_rows": len(splits["test"]),
            "epochs": watch.epochs,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
