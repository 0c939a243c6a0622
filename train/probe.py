"""What a batch costs, from a few tiny ones: FLOPs and bytes kept for the backward pass, exact for any architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from train.precision import Precision

# Both figures are constant + rows × (a + b·length + c·length²): four shapes determine the four coefficients.
SHAPES = ((2, 4), (2, 6), (2, 8), (4, 8))


@dataclass(frozen=True)
class BatchCost:
    """The four coefficients of one figure of a batch."""

    coefficients: tuple[float, ...]

    def at(self, rows: int, length: int) -> float:
        """Return the figure of a batch of ``rows`` texts padded to ``length`` tokens."""
        return float(np.dot(_features(rows, length), self.coefficients))


def flops(model: Any, device: torch.device) -> BatchCost:  # noqa: ANN401 - transformers is untyped
    """Return the FLOPs of a forward and backward pass in training mode, multiply-adds times 2.

    Attention is counted as plain products: the counter does not know every fused kernel.
    """

    def measure(rows: int, length: int) -> float:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            _forward(model, rows, length, device).sum().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        return float(counter.get_total_flops())

    return _fit(measure)


def saved_bytes(model: Any, device: torch.device, precision: Precision) -> BatchCost:  # noqa: ANN401
    """Return the bytes that a forward pass keeps for the backward pass, the parameters themselves left out."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def measure(rows: int, length: int) -> float:
        storages: dict[int, int] = {}
        kept: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                storages[storage.data_ptr()] = storage.nbytes()
                kept.append(tensor)  # held, so that no address is used twice
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), precision.autocast(device):
            _forward(model, rows, length, device)
        return float(sum(storages.values()))

    return _fit(measure)


def _forward(model: Any, rows: int, length: int, device: torch.device) -> Tensor:  # noqa: ANN401
    model.train()
    ids = torch.zeros((rows, length), dtype=torch.int64, device=device)
    logits: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return logits


def _features(rows: int, length: int) -> NDArray[np.float64]:
    return np.array([1.0, rows, rows * length, rows * length**2])


def _fit(measure: Callable[[int, int], float]) -> BatchCost:
    measured = np.array([measure(rows, length) for rows, length in SHAPES])
    return BatchCost(tuple(np.linalg.solve(np.array([_features(*shape) for shape in SHAPES]), measured)))
