"""Dropout, softmax and attention with fewer passes, for a CPU's small training steps; the same arithmetic.

What torch 2.13 does on a CPU, and what is done here instead (batch 32 × 14 tokens, one thread, `benchmarks/training`):

- ``bernoulli_`` draws one number an element, about 5 ns each. 16 bits of one draw decide here: four elements share it.
- softmax over fewer than 16 columns leaves its vectorised path, 4 to 6 times slower than plain passes over the rows.
- scaled_dot_product_attention has no fused kernel with dropout: it composes the two slow operators above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# A mask is decided by 15 random bits, so that a share of dropped elements is exact to 1 / 32768.
LEVELS = 1 << 15
# torch's vectorised softmax needs a full vector of FP32 columns.
VECTOR_COLUMNS = 16


def quick(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which models on a CPU use this module's operators; on a GPU torch's own are fused already."""
    if device.type != "cpu":
        return nullcontext()
    return _Replaced()


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, p: float) -> Tensor:  # noqa: ANN401 - torch's own context
        mask = keep_mask(values.shape, 1.0 - p)
        ctx.save_for_backward(mask)
        ctx.scale = 1.0 / (1.0 - p)
        return masked(values, mask, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (mask,) = ctx.saved_tensors
        return masked(gradient, mask, ctx.scale), None


class _ShortSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:  # noqa: ANN401
        wide = scores.float()
        shares = (wide - wide.amax(dim=-1, keepdim=True)).exp_()
        shares.mul_(shares.sum(dim=-1, keepdim=True).reciprocal_())
        ctx.save_for_backward(shares)
        return shares.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        (shares,) = ctx.saved_tensors
        wide: Tensor = gradient.float()
        towards: Tensor = (wide - (wide * shares).sum(dim=-1, keepdim=True)).mul_(shares)
        return towards.to(gradient.dtype)


def keep_mask(shape: Sequence[int], keep: float) -> Tensor:
    """Draw a mask from torch's generator: int16, -1 (all bits set) with probability ``keep``, else 0."""
    size = math.prod(shape)
    bits = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[:size]
    below = bits.bitwise_and_(LEVELS - 1).sub_(round(keep * LEVELS))
    return below.bitwise_right_shift_(15).view(tuple(shape))


def masked(values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Return ``values`` × ``scale`` where the mask is set, 0 elsewhere."""
    if values.dtype == torch.bfloat16:
        return (values.contiguous().view(torch.int16) & mask).view(torch.bfloat16).mul_(scale)
    return values * mask.to(values.dtype).mul_(-scale)


def dropout(values: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """As `torch.nn.functional.dropout`."""
    if not training or not 0 < p < 1 or inplace:
        return functional.dropout(values, p, training, inplace)
    return cast("Tensor", _Dropout.apply(values, p))  # type: ignore[no-untyped-call]


def softmax(scores: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    """As `torch.nn.functional.softmax`."""
    if dtype is not None or dim not in {-1, scores.dim() - 1} or scores.shape[-1] >= VECTOR_COLUMNS:
        return functional.softmax(scores, dim, _stacklevel, dtype)
    return cast("Tensor", _ShortSoftmax.apply(scores))  # type: ignore[no-untyped-call]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As `torch.nn.functional.scaled_dot_product_attention`, composed of the operators above where it has dropout."""
    if dropout_p == 0 or is_causal or enable_gqa:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * factor, key.transpose(-2, -1))
    if attn_mask is not None:
        blocked = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if blocked else scores + attn_mask.to(scores.dtype)
    # In FP32, as torch's own softmax of bf16 needs 32 columns for its vectorised path.
    shares = softmax(scores.float(), dim=-1).to(value.dtype)
    return torch.matmul(dropout(shares, dropout_p), value)


REPLACED: Mapping[Callable[..., Tensor], Callable[..., Tensor]] = {
    functional.dropout: dropout,
    functional.softmax: softmax,
    functional.scaled_dot_product_attention: attention,
}


class _Replaced(TorchFunctionMode):
    """Sends calls of torch's functions to their namesakes here."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        chosen: Callable[..., Any] = REPLACED.get(func, func)
        return chosen(*args, **(kwargs or {}))
