"""Classifiers: a pretrained model with a new head, and a student made of some of its teacher's layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn

from testbed.errors import UserError
from testbed.records.training import ModelShape


def load_classifier(folder: Path, labels: Sequence[str], *, seed: int) -> Any:  # noqa: ANN401 - transformers is untyped
    """Return the model of a Hugging Face folder with a classification head for these labels.

    A head that does not fit is drawn anew from ``seed``.

    Raises:
        UserError: the folder's architecture has no sequence classifier or is no plain encoder, or its files are
            damaged.
    """
    logging = cast("Any", transformers.logging)  # untyped
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(seed)
    try:
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: index for index, label in enumerate(labels)},
            problem_type="single_label_classification",
            ignore_mismatched_sizes=True,
            local_files_only=True,
            dtype=torch.float32,
        )
    except Exception as error:  # transformers and safetensors raise whatever a bad file leads to
        msg = f"{folder}: not a sequence classifier that can be loaded ({error}); help: check the folder's files"
        raise UserError(msg) from error
    positions = getattr(model.config, "max_position_embeddings", None) or 0
    if model.config.is_encoder_decoder or positions <= 0:
        what = "an encoder and a decoder" if model.config.is_encoder_decoder else "no fixed number of positions"
        msg = f"{folder}: {type(model).__name__} has {what}; help: take an encoder such as BERT or one of its kin"
        raise UserError(msg)
    return model


def student_of(teacher: Any, layers: Sequence[int]) -> Any:  # noqa: ANN401
    """Return a copy of the teacher that keeps only these layers, in this order, with its embeddings and its head.

    Raises:
        UserError: a layer that the teacher does not have.
    """
    num_layers = teacher.config.num_hidden_layers
    if max(layers) >= num_layers:
        msg = (
            f"train.student.layers names layer {max(layers)}, the teacher has {num_layers} (0 to {num_layers - 1}); "
            "help: name layers that it has"
        )
        raise UserError(msg)
    student = copy.deepcopy(teacher)
    stack = layer_stack(student)
    for index in reversed(range(num_layers)):
        if index not in layers:
            del stack[index]
    student.config.num_hidden_layers = len(layers)
    return student


def layer_stack(model: Any) -> nn.ModuleList:  # noqa: ANN401
    """Return the model's list of hidden layers, whatever its architecture calls it."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == model.config.num_hidden_layers:
            return module
    msg = f"{type(model).__name__}: no list of layers found; help: name train.student.model instead of layers"
    raise UserError(msg)


def shape_of(model: Any, *, num_labels: int, max_length: int) -> ModelShape:  # noqa: ANN401
    """Return the model's size as records hold it."""
    return ModelShape(
        architecture=type(model).__name__,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_layers=model.config.num_hidden_layers,
        hidden_size=model.config.hidden_size,
        num_labels=num_labels,
        max_length=max_length,
    )


def max_positions(model: Any) -> int:  # noqa: ANN401
    """Return how many tokens of a text the model has positions for."""
    positions = int(model.config.max_position_embeddings)
    # RoBERTa, MPNet and their kin count positions from padding_idx + 1.
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return positions - int(module.padding_idx) - 1
    return positions
