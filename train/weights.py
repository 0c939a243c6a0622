"""Narrow working weights of a model, made of the FP32 weights that the optimiser updates.

Autocast casts every weight in every step and every activation at every product. Here the weights are cast once, after
the optimiser's step, and activations stay in bf16 between the products; normalisations compute in FP32 inside, and
embeddings stay in FP32, as their gradients add up over many tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

# Modules whose weights stay in FP32.
WIDE = (nn.Embedding, nn.LayerNorm)


class WorkingWeights:
    """The weights of a model during its training.

    Args:
        model: its parameters are FP32 outside of the training.
        dtype: of the working weights; FP32 makes no copy, and the optimiser updates the model's own parameters.

    Attributes:
        trained: the FP32 tensor that stands for each parameter with a gradient, in the model's order.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._model = model
        self._hooks: list[RemovableHandle] = []
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        wide = {id(p) for module in model.modules() if isinstance(module, WIDE) for p in module.parameters()}
        self._narrow = [] if dtype == torch.float32 else [p for p in parameters if id(p) not in wide]
        copies = {id(p): p.detach().clone().requires_grad_() for p in self._narrow}
        self._masters = list(copies.values())
        self.trained: dict[nn.Parameter, Tensor] = {p: copies.get(id(p), p) for p in parameters}
        for parameter in self._narrow:
            parameter.data = parameter.data.to(dtype)
        if self._narrow:
            layers = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
            self._hooks = [layer.register_forward_hook(_narrowing(dtype)) for layer in layers]

    def take_gradients(self) -> list[Tensor]:
        """Give the FP32 weights the model's gradients; returns them."""
        for master, parameter in zip(self._masters, self._narrow, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        return [tensor.grad for tensor in self.trained.values() if tensor.grad is not None]

    def give(self) -> None:
        """Round the FP32 weights into the model."""
        if self._narrow:
            with torch.no_grad():
                torch._foreach_copy_([p.data for p in self._narrow], self._masters)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the model's state with FP32 weights."""
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        state: dict[str, Tensor] = self._model.state_dict()
        return state | {names[id(p)]: tensor.detach() for p, tensor in self.trained.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take such a state up again."""
        self._model.load_state_dict(state)
        names = {id(parameter): name for name, parameter in self._model.named_parameters()}
        with torch.no_grad():
            for parameter, master in zip(self._narrow, self._masters, strict=True):
                master.copy_(state[names[id(parameter)]])

    def restore(self) -> None:
        """Give the model its FP32 weights back, for good."""
        for hook in self._hooks:
            hook.remove()
        for parameter, master in zip(self._narrow, self._masters, strict=True):
            parameter.grad = None
            parameter.data = master.detach()


def _narrowing(dtype: torch.dtype) -> Any:  # noqa: ANN401 - a hook
    def hook(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output.to(dtype)

    return hook
