"""A model divided over the processes: weights, gradients and optimiser states, a layer at a time (FSDP2).

Zhao et al. 2023, "PyTorch FSDP". Between two uses each process holds its part of every layer alone; a layer is gathered
for its forward and its backward pass, and its gradients are averaged into the parts. State on disk is whole, as that of
a single process.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from testbed.errors import UserError
from train.ledger import Prediction
from train.model import layer_stack

Parallel = Literal["none", "ddp", "fsdp"]
WHOLE = StateDictOptions(full_state_dict=True)


class ShardedModel:
    """A model whose weights are divided over all processes, from here on.

    Args:
        model: whole, in every process, on its device; sharded in place.
        device: of this process.
    """

    def __init__(self, model: Any, device: torch.device) -> None:  # noqa: ANN401 - transformers is untyped
        self._whole = copy.deepcopy(model).cpu()
        self._device = device
        self.model = model
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for module in (*layer_stack(model), model):
            sharded = fully_shard(module, mesh=mesh)
            # Gloo sums and cannot average; FSDP then divides by itself.
            sharded.set_force_sum_reduction_for_comms(device.type == "cpu")

    def state_dict(self) -> dict[str, Any]:
        """Return the whole weights, in every process; all processes must ask."""
        return get_model_state_dict(self.model, options=WHOLE)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take this process's part of whole weights."""
        set_model_state_dict(self.model, state, options=WHOLE)

    def whole(self) -> Any:  # noqa: ANN401
        """Return an ordinary model with the weights as they are now."""
        self._whole.load_state_dict(self.state_dict())
        return self._whole.to(self._device)


class ShardedOptimizer:
    """The states of an optimiser over sharded weights, whole and by name, for a checkpoint.

    Args:
        model: the sharded one.
        optimizer: over its parameters.
    """

    def __init__(self, model: FSDPModule, optimizer: torch.optim.Optimizer) -> None:
        self._model: Any = model
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return the whole states, in every process; all processes must ask."""
        return get_optimizer_state_dict(self._model, self._optimizer, options=WHOLE)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take this process's part of whole states."""
        set_optimizer_state_dict(self._model, self._optimizer, state, options=WHOLE)


def choose(
    wanted: Literal["auto", "ddp", "fsdp"],
    prediction: Prediction,
    batch: tuple[int, int],
    *,
    world_size: int,
    available_bytes: int,
) -> Parallel:
    """Return how the processes share the model: ``auto`` shards where one device cannot hold a whole copy's training.

    Args:
        wanted: of the configuration.
        prediction: of one process's memory with a whole copy.
        batch: texts and tokens a text of the largest batch.
        world_size: how many processes there are.
        available_bytes: that this process may fill.
    """
    if world_size == 1:
        return "none"
    if wanted != "auto":
        return wanted
    try:
        prediction.check(*batch, available_bytes=available_bytes)
    except UserError:
        return "fsdp"
    return "ddp"


def gathered_bytes(model: Any) -> int:  # noqa: ANN401
    """Return the bytes of weights and gradients that are whole at once: what is in no layer, and the largest layer."""
    layers = [sum(p.numel() * p.element_size() for p in layer.parameters()) for layer in layer_stack(model)]
    everything: int = sum(p.numel() * p.element_size() for p in model.parameters())
    return 2 * (everything - sum(layers) + max(layers))
