"""What a step minimises: the labels' cross-entropy for a teacher, and the teacher's answers too for a student."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from train.config import StudentConfig
from train.loader import Batch


class Objective(Protocol):
    """Gives one process's part of the global batch's mean loss, a scalar."""

    def __call__(self, model: Any, batch: Batch) -> Tensor:  # noqa: ANN401
        """Return it."""
        ...


class LabelLoss:
    """Weighted cross-entropy with the labels."""

    def __call__(self, model: Any, batch: Batch) -> Tensor:  # noqa: ANN401
        """Return the mean over the global batch, of the texts that this process has."""
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        return _mean(functional.cross_entropy(logits.float(), batch.labels, reduction="none"), batch)


class DistillationLoss:
    """Labels, the teacher's distribution and its hidden states, weighted (see StudentConfig)."""

    def __init__(self, config: StudentConfig) -> None:
        self._config = config

    def __call__(self, model: Any, batch: Batch) -> Tensor:  # noqa: ANN401
        """Return the mean over the global batch, of the texts that this process has."""
        config = self._config
        output = model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            output_hidden_states=config.hidden_weight > 0,
        )
        logits = output.logits.float()
        loss = config.hard_weight * functional.cross_entropy(logits, batch.labels, reduction="none")
        if config.soft_weight:
            loss = loss + config.soft_weight * soft_loss(logits, _given(batch.teacher_logits), config.temperature)
        if config.hidden_weight:
            states = torch.stack(output.hidden_states[1:], dim=2)
            loss = loss + config.hidden_weight * hidden_loss(states, _given(batch.teacher_hidden), batch.attention_mask)
        return _mean(loss, batch)


def soft_loss(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """Return temperature² × KL(teacher ‖ student) of each text, [rows] (Hinton et al. 2015, section 2)."""
    student = functional.log_softmax(logits / temperature, dim=-1)
    teacher = functional.log_softmax(teacher_logits / temperature, dim=-1)
    divergence = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(dim=-1)
    return temperature**2 * divergence


def hidden_loss(states: Tensor, teacher_states: Tensor, attention_mask: Tensor) -> Tensor:
    """Return the mean squared difference of each text over its real tokens, layers and dimensions, [rows].

    Args:
        states: [rows, length, layers, hidden size].
        teacher_states: the same shape.
        attention_mask: [rows, length].
    """
    squared = (states.float() - teacher_states.float()).square().mean(dim=(2, 3))
    mask = attention_mask.float()
    return (squared * mask).sum(dim=1) / mask.sum(dim=1)


def _mean(loss: Tensor, batch: Batch) -> Tensor:
    return (loss * batch.weights).sum() / batch.num_texts


def _given(tensor: Tensor | None) -> Tensor:
    assert tensor is not None, "a student's batches carry what its teacher said"
    return tensor
