"""The quick operators compute what torch's own do, and drop as often; working weights follow the FP32 ones."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from train.loop import clip_in_step
from train.operators import attention, dropout, keep_mask, quick, softmax
from train.weights import WorkingWeights

CPU = torch.device("cpu")


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.75])
def test_a_mask_keeps_its_share_each_element_apart(keep: float) -> None:
    torch.manual_seed(7)
    kept = keep_mask((1000, 1001), keep) != 0
    # five standard errors of a share over a million draws
    assert kept.double().mean().item() == pytest.approx(keep, abs=5 * (keep * (1 - keep) / kept.numel()) ** 0.5)
    # four neighbours share one 64-bit draw: they must not know of each other
    for distance in (1, 2, 3, 4):
        both = (kept.flatten()[:-distance] & kept.flatten()[distance:]).double().mean().item()
        assert both == pytest.approx(keep**2, abs=0.003)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_zeroes_scales_and_sends_the_gradient_the_same_way(dtype: torch.dtype) -> None:
    values = (torch.rand(64, 33, dtype=torch.float32) + 1).to(dtype).requires_grad_()
    torch.manual_seed(3)
    dropped = dropout(values, 0.25)
    kept = dropped != 0
    assert 0.6 < kept.double().mean() < 0.9
    torch.testing.assert_close(dropped[kept], values[kept] / 0.75, rtol=0.01, atol=0)
    dropped.sum().backward()
    torch.testing.assert_close(values.grad, kept.to(dtype) / 0.75, rtol=0.01, atol=0)
    assert dropout(values, 0.25, training=False) is values
    torch.manual_seed(3)
    assert torch.equal(dropout(values, 0.25), dropped)


@pytest.mark.parametrize("columns", [1, 5, 15, 16, 40])
def test_softmax_and_its_gradient_are_torchs(columns: int) -> None:
    torch.manual_seed(0)
    scores = (torch.randn(3, 7, columns, dtype=torch.float32) * 20).requires_grad_()
    scores.data[0, 0, columns // 2 + 1 :] = -torch.inf
    weights = torch.randn(3, 7, columns)
    gradients = []
    for function in (softmax, functional.softmax):
        scores.grad = None
        shares = function(scores, dim=-1)
        (shares * weights).sum().backward()
        gradients.append((shares.detach(), scores.grad))
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mask", ["none", "bool", "added"])
def test_attention_without_a_drop_is_torchs(mask: str) -> None:
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 3, 9, 8, requires_grad=True) for _ in range(3))
    seen = torch.rand(2, 1, 9, 9) > 0.3
    seen[..., 0] = True
    added = torch.zeros(2, 1, 9, 9).masked_fill(~seen, torch.finfo(torch.float32).min)
    given = {"none": None, "bool": seen, "added": added}[mask]
    # a probability too small to drop anything here still takes the composed path
    ours = attention(query, key, value, attn_mask=given, dropout_p=1e-9)
    theirs = functional.scaled_dot_product_attention(query, key, value, attn_mask=given)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for one, other in zip(
        torch.autograd.grad(ours.square().sum(), (query, key, value)),
        torch.autograd.grad(theirs.square().sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_context_replaces_what_modules_call() -> None:
    layer = nn.Dropout(0.5)
    values = torch.ones(1000)
    torch.manual_seed(0)
    expected = dropout(values, 0.5)
    torch.manual_seed(0)
    with quick(CPU):
        found = layer(values)
    torch.manual_seed(0)
    assert torch.equal(found, expected)
    assert not torch.equal(layer(values), expected)


def test_clipping_inside_the_fused_step_is_clipping_before_it() -> None:
    torch.manual_seed(0)
    first = nn.Linear(20, 20)
    second = copy.deepcopy(first)
    for model, inside in ((first, True), (second, False)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, eps=0.1, fused=True)
        for scale in (100.0, 0.001):  # one gradient to be clipped, one that is short enough
            torch.manual_seed(1)
            optimizer.zero_grad()
            (model(torch.randn(4, 20)).square().sum() * scale).backward()
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            if inside:
                clip_in_step(optimizer, norm, 1.0)
            else:
                nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)
            optimizer.step()
    torch.testing.assert_close(first.weight, second.weight)


def test_working_weights_follow_the_fp32_ones_and_give_them_back() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    before = copy.deepcopy(model.state_dict())
    weights = WorkingWeights(model, torch.bfloat16)
    assert [p.dtype for p in model.parameters()] == [torch.float32] * 3 + [torch.bfloat16] * 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights.state_dict().items())
    model(torch.arange(5)).float().sum().backward()
    assert all(gradient.dtype == torch.float32 for gradient in weights.take_gradients())
    with torch.no_grad():
        for master in weights.trained.values():
            master.add_(1e-4)  # less than bf16 resolves: kept in FP32, and not lost
    weights.give()
    weights.restore()
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, before[name] + 1e-4, rtol=0, atol=1e-7)
