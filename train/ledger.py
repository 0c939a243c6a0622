"""Where a training's memory goes: predicted before it begins, compared with what was measured after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psutil
import torch

from testbed.errors import UserError
from testbed.machine import memory_bytes
from testbed.records.training import MemoryLedger
from train.probe import BatchCost

# AdamW keeps a mean and a mean square of each gradient.
OPTIMIZER_STATES = 2
# The share of the memory that a prediction may claim: allocators fragment, and measured peaks came out up to 1.2 times
# the prediction.
SAFE_SHARE = 0.8


@dataclass(frozen=True)
class Prediction:
    """Bytes by use, before the run.

    Attributes:
        parameters_bytes: weights, all of which have gradients.
        activations: bytes that a batch keeps for its backward pass.
        base_bytes: what the process (or the device) uses already, the weights left out.
        num_shards: processes that the weights, gradients and optimiser states are divided over; 1 for whole copies.
        gathered_bytes: of the divided weights and gradients, what is whole at once.
    """

    parameters_bytes: int
    activations: BatchCost
    base_bytes: int
    num_shards: int = 1
    gathered_bytes: int = 0

    @property
    def fixed_bytes(self) -> int:
        """Everything but the activations."""
        states = (2 + OPTIMIZER_STATES) * self.parameters_bytes // self.num_shards
        return self.base_bytes + states + self.gathered_bytes

    def ledger(self, rows: int, length: int, *, measured_peak_bytes: int | None) -> MemoryLedger:
        """Return the record for a largest batch of ``rows`` texts of ``length`` tokens."""
        activations = int(self.activations.at(rows, length))
        return MemoryLedger(
            parameters_bytes=self.parameters_bytes // self.num_shards,
            gradients_bytes=self.parameters_bytes // self.num_shards,
            optimizer_bytes=OPTIMIZER_STATES * self.parameters_bytes // self.num_shards,
            activations_bytes=activations,
            predicted_bytes=self.fixed_bytes + activations,
            measured_peak_bytes=measured_peak_bytes,
        )

    def check(self, rows: int, length: int, *, available_bytes: int) -> None:
        """Raise UserError where the training cannot fit, naming a token budget that would."""
        room = SAFE_SHARE * available_bytes - self.fixed_bytes
        needed, shard_bytes = self.activations.at(rows, length), self.parameters_bytes // self.num_shards
        if needed <= room:
            return
        fitting = [smaller for smaller in range(1, rows) if self.activations.at(smaller, length) <= room]
        would = (
            f"set train.token_budget to {fitting[-1] * length} or less"
            if fitting
            else "no batch size fits: take a smaller model, a shorter max_length or a larger machine"
        )
        msg = (
            f"the training needs about {_gb(self.fixed_bytes + needed)} ({_gb(shard_bytes)} weights, "
            f"{_gb(shard_bytes)} gradients, {_gb(OPTIMIZER_STATES * shard_bytes)} optimiser, {_gb(needed)} activations "
            f"of {rows} texts of {length} tokens, {_gb(self.base_bytes + self.gathered_bytes)} else), and "
            f"{_gb(available_bytes)} are there; help: {would}"
        )
        raise UserError(msg)


def predict(model: Any, activations: BatchCost, device: torch.device) -> Prediction:  # noqa: ANN401
    """Return the prediction for a model that is on its device."""
    parameters = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        used = total - free
    else:
        used = psutil.Process().memory_info().rss
    return Prediction(parameters_bytes=parameters, activations=activations, base_bytes=max(0, used - parameters))


def available_bytes(device: torch.device, *, processes_here: int) -> int:
    """Return the memory that this process may fill: the device's, or its part of what the machine's processes share."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    return memory_bytes() // processes_here


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.2f} GB"
