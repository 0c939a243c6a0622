"""What a batch costs, from a few tiny ones: FLOPs and bytes kept for the backward pass, exact for any architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from train.operators import quick
from train.precision import Precision
from train.weights import WorkingWeights

# Both figures are constant + rows × (a + b·length + c·length²): four shapes determine the four coefficients.
SHAPES = ((2, 4), (2, 6), (2, 8), (4, 8))
# Operators that are no views by name and yet touch no element.
STILL = {
    torch.ops.aten._unsafe_view,  # noqa: SLF001 - the operator's name
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
}


@dataclass(frozen=True)
class BatchCost:
    """The four coefficients of one figure of a batch."""

    coefficients: tuple[float, ...]

    def at(self, rows: float, length: float) -> float:
        """Return the figure of a batch of ``rows`` texts padded to ``length`` tokens."""
        return float(np.dot(_features(rows, length), self.coefficients))


@dataclass(frozen=True)
class StepCost:
    """What each pass over a batch computes, multiply-adds times 2, and moves, in bytes."""

    forward_flops: BatchCost
    backward_flops: BatchCost
    forward_bytes: BatchCost
    backward_bytes: BatchCost

    def flops(self, rows: int, length: int) -> float:
        """Return both passes' FLOPs over a batch of ``rows`` texts padded to ``length`` tokens."""
        return self.forward_flops.at(rows, length) + self.backward_flops.at(rows, length)


class _Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of every operator's inputs and outputs; views move none."""

    moved_bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's own types
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func.overloadpacket not in STILL:
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            self.moved_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


def step_cost(
    model: Any,  # noqa: ANN401 - transformers is untyped
    device: torch.device,
    precision: Precision,
    working: torch.dtype,
) -> StepCost:
    """Return what a forward and a backward pass compute and move, apart; an untouched embedding row counts as moved.

    Attention is counted as plain products: the FLOP counter does not know every fused kernel. A compiled model moves
    less than its operators do one by one, which is what is counted.

    Args:
        model: with FP32 weights, as it has again afterwards.
        device: where it is.
        precision: of the passes.
        working: type of the weights while it trains (`train.weights`).
    """

    def flops(rows: int, length: int) -> tuple[float, float]:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            loss = _forward(model, rows, length, device).sum()
            forward = counter.get_total_flops()
            loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        return forward, counter.get_total_flops() - forward

    def moved(rows: int, length: int) -> tuple[float, float]:
        traffic = _Traffic()  # type: ignore[no-untyped-call]
        with traffic, precision.autocast(device), quick(device):
            loss = _forward(model, rows, length, device).sum()
            forward = traffic.moved_bytes
            loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        return forward, traffic.moved_bytes - forward

    computed = {shape: flops(*shape) for shape in SHAPES}
    with _working_weights(model, working):
        measured = {shape: (*computed[shape], *moved(*shape)) for shape in SHAPES}
    return StepCost(*(_fit(lambda *shape, figure=figure: measured[shape][figure]) for figure in range(4)))


@contextmanager
def _working_weights(model: Any, working: torch.dtype) -> Iterator[None]:  # noqa: ANN401
    weights = WorkingWeights(model, working)
    try:
        yield
    finally:
        weights.restore()


def saved_bytes(
    model: Any,  # noqa: ANN401 - transformers is untyped
    device: torch.device,
    precision: Precision,
    working: torch.dtype,
) -> BatchCost:
    """Return the bytes that a forward pass keeps for the backward pass, the parameters themselves left out.

    Args:
        model: with FP32 weights, as it has again afterwards.
        device: where it is.
        precision: of the passes.
        working: type of the weights while it trains (`train.weights`).
    """

    def measure(rows: int, length: int) -> float:
        storages: dict[int, int] = {}
        kept: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                storages[storage.data_ptr()] = storage.nbytes()
                kept.append(tensor)  # held, so that no address is used twice
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with hooks, precision.autocast(device), quick(device):
            _forward(model, rows, length, device)
        return float(sum(storages.values()))

    with _working_weights(model, working):
        parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        return _fit(measure)


def _forward(model: Any, rows: int, length: int, device: torch.device) -> Tensor:  # noqa: ANN401
    model.train()
    ids = torch.zeros((rows, length), dtype=torch.int64, device=device)
    logits: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return logits


def _features(rows: float, length: float) -> NDArray[np.float64]:
    return np.array([1.0, rows, rows * length, rows * length**2])


def _fit(measure: Callable[[int, int], float]) -> BatchCost:
    measured = np.array([measure(rows, length) for rows, length in SHAPES])
    return BatchCost(tuple(np.linalg.solve(np.array([_features(*shape) for shape in SHAPES]), measured)))
