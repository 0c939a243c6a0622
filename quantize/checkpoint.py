"""A Hugging Face checkpoint, opened and checked: a classifier of this data set's labels, with whole weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quantize.encoder import ARCHITECTURES
from testbed.errors import UserError
from testbed.records import TrainingRun, file_sha256, load_as
from testbed.tokenization import TextTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
# transformers writes 1e30 as "no limit" into tokenizer_config.json.
SANE_LENGTH = 100_000
# Stands before a layer's number in the names of its modules.
_LAYER = ".layer."


class CheckpointError(UserError):
    """A checkpoint that cannot be exported."""


@dataclass(frozen=True)
class Checkpoint:
    """A checked checkpoint.

    Attributes:
        folder: where it lies.
        model: the PyTorch model in evaluation mode.
        tokenizer: text to ids.
        pad_token_id: for padded batches.
    """

    folder: Path
    model: PreTrainedModel
    tokenizer: TextTokenizer
    pad_token_id: int

    @property
    def sha256(self) -> str:
        """The hash of the weights' file (of the index, where they are sharded)."""
        return file_sha256(next(self.folder / name for name in WEIGHTS if (self.folder / name).is_file()))

    @property
    def num_parameters(self) -> int:
        """All parameters, embeddings included."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def flops_per_token(self, mean_length: float) -> float:
        """Return multiply-adds times 2 of one token: its share of every linear layer, and attention at this length.

        The head runs once a text, so it is shared out over ``mean_length`` tokens.
        """
        every = {name for name in self._linear_weights if _LAYER in name}
        return self._flops(mean_length, every, self.model.config.num_hidden_layers)

    def packed_flops_per_token(self, mean_length: float) -> float:
        """Return the same of the packed layout, where the last layer's first token alone asks and is fed forward.

        For an architecture that can be packed.
        """
        last = self.model.config.num_hidden_layers - 1
        merged = ARCHITECTURES[self.model.config.model_type].attention[:3]
        every = {
            name
            for name in self._linear_weights
            if _LAYER in name and (f"{_LAYER}{last}." not in name or name.endswith(merged))
        }
        return self._flops(mean_length, every, last + 1 / mean_length)

    @cached_property
    def _linear_weights(self) -> dict[str, int]:
        from torch.nn import Linear

        modules = self.model.named_modules()
        return {name: module.weight.numel() for name, module in modules if isinstance(module, Linear)}

    def _flops(self, mean_length: float, every_token: AbstractSet[str], attention_layers: float) -> float:
        weights = sum(
            size if name in every_token else size / mean_length for name, size in self._linear_weights.items()
        )
        return float(2 * weights + 4 * mean_length * self.model.config.hidden_size * attention_layers)


def open_checkpoint(folder: Path, *, labels: Sequence[str], max_length: int | None) -> Checkpoint:
    """Load a checkpoint for a data set with these labels.

    Args:
        folder: ``config.json``, weights, ``tokenizer.json``.
        labels: label names by id.
        max_length: for a checkpoint that names none; of two that do, the shorter.

    Raises:
        CheckpointError: not a checkpoint, not a classifier, other labels, weights with NaN or infinity, or no
            maximum length.
    """
    config = _read_config(folder)
    _check_classifier(folder, config, labels)
    model = _load_model(folder)
    _check_weights(folder, model)
    length = _max_length(folder, config, max_length)
    pad = config.get("pad_token_id")
    return Checkpoint(
        folder=folder,
        model=model,
        tokenizer=TextTokenizer(folder / "tokenizer.json", max_length=length),
        pad_token_id=0 if pad is None else int(pad),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    if not any((folder / name).is_file() for name in WEIGHTS):
        msg = f"{folder}: no weights ({WEIGHTS[0]}); help: train it first, or save it with save_pretrained"
        raise CheckpointError(msg)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{folder / 'config.json'}: not readable ({error}); help: save the model with save_pretrained"
        raise CheckpointError(msg) from error
    assert isinstance(config, dict)
    return config


def _check_classifier(folder: Path, config: dict[str, Any], labels: Sequence[str]) -> None:
    architecture = (config.get("architectures") or ["unknown"])[0]
    if not architecture.endswith("ForSequenceClassification"):
        msg = (
            f"{folder}: holds a {architecture}, not a classifier; help: fine-tune it first, "
            "as …ForSequenceClassification (`breakeven train teacher EXPERIMENT.yaml`)"
        )
        raise CheckpointError(msg)
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    own = [names[key] for key in sorted(names, key=int)]
    generic = own == [f"LABEL_{i}" for i in range(len(own))]
    if len(own) != len(labels) or not (generic or own == list(labels)):
        msg = (
            f"{folder}: its labels are {_shown(own)}, the data set's are {_shown(labels)}; "
            "help: name the checkpoint of this experiment, or the data set that it was trained on"
        )
        raise CheckpointError(msg)


def _shown(labels: Sequence[str]) -> str:
    return f"{len(labels)} ({', '.join(labels[:6])}{', …' if len(labels) > 6 else ''})"  # noqa: PLR2004 - fits a line


def _load_model(folder: Path) -> PreTrainedModel:
    from transformers import AutoModelForSequenceClassification

    try:
        model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # safetensors, torch and transformers each raise their own
        msg = f"{folder}: cannot be loaded ({error}); help: the weights' file may be cut short: save or copy it again"
        raise CheckpointError(msg) from error
    loaded: PreTrainedModel = model.eval()
    return loaded


def _check_weights(folder: Path, model: PreTrainedModel) -> None:
    import torch

    for name, tensor in model.named_parameters():
        if not bool(torch.isfinite(tensor).all()):
            msg = (
                f"{folder}: the weights {name} hold NaN or infinity; help: the training diverged: "
                "train again with a lower learning rate"
            )
            raise CheckpointError(msg)


def _max_length(folder: Path, config: dict[str, Any], fallback: int | None) -> int:
    record = folder / "record.json"
    if record.is_file():
        return load_as(TrainingRun, record).model.max_length
    found = [fallback] if fallback else []
    tokenizer_config = folder / "tokenizer_config.json"
    if tokenizer_config.is_file():
        found.append(int(min(json.loads(tokenizer_config.read_text("utf-8")).get("model_max_length", 1e30), 1e30)))
    if config.get("max_position_embeddings"):
        # RoBERTa's kind counts positions from its padding id: two fewer tokens fit.
        offset = 2 if config.get("model_type") in {"roberta", "xlm-roberta", "camembert", "mpnet"} else 0
        found.append(int(config["max_position_embeddings"]) - offset)
    sane = [length for length in found if length < SANE_LENGTH]
    if not sane:
        msg = f"{folder}: says nowhere how many tokens it takes; help: set max_length in the section quantize"
        raise CheckpointError(msg)
    return min(sane)
