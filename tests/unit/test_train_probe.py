"""The bytes of a step, against a model small enough to count them by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from train.precision import Precision
from train.probe import saved_bytes, step_cost

CPU = torch.device("cpu")
BF16 = Precision("bf16", "test")
VOCABULARY, WIDTH, OUTPUTS = 50, 32, 48
TABLE, MATRIX = VOCABULARY * WIDTH, WIDTH * OUTPUTS


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.product = nn.Linear(WIDTH, OUTPUTS, bias=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.product(self.norm(self.table(input_ids))))


def test_bytes_of_working_weights_are_those_counted_by_hand() -> None:
    cost = step_cost(Toy(), CPU, BF16, torch.bfloat16)
    # Forward: the FP32 table, the two FP32 vectors of the normalisation, the bf16 matrix, one read each; the sum's 2.
    assert cost.forward_bytes.at(0, 0) == pytest.approx(4 * TABLE + 2 * 4 * WIDTH + 2 * MATRIX + 2, abs=1)
    # Each token: its id (made 0, the mask made of it: 8 + 8 + 8; read 8), its row read out (4) and normalised (4 + 4, a
    # mean and a deviation of 4 each), rounded to bf16 (4 + 2), multiplied (2 in, 2 out), summed (2).
    token = 8 * 4 + WIDTH * (4 + 4 + 4 + 4 + 2 + 2) + 2 * 4 + OUTPUTS * (2 + 2)
    assert cost.forward_bytes.at(1, 1) - cost.forward_bytes.at(0, 0) == pytest.approx(token, abs=1)


def test_autocast_moves_the_casts_of_every_matrix_as_well() -> None:
    autocast = step_cost(Toy(), CPU, BF16, torch.float32)
    working = step_cost(Toy(), CPU, BF16, torch.bfloat16)
    # Forward it reads each FP32 matrix and writes it in bf16; backward it casts the gradient the other way.
    assert autocast.forward_bytes.at(0, 0) - working.forward_bytes.at(0, 0) == pytest.approx(6 * MATRIX, abs=1)
    assert autocast.backward_bytes.at(0, 0) - working.backward_bytes.at(0, 0) == pytest.approx(6 * MATRIX, abs=1)
    assert autocast.forward_flops == working.forward_flops


def test_the_probe_leaves_the_model_as_it_was() -> None:
    model = Toy()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    step_cost(model, CPU, BF16, torch.bfloat16)
    saved_bytes(model, CPU, BF16, torch.bfloat16)
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, before[name])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.norm(torch.ones(1, WIDTH)).dtype == torch.float32


def test_working_weights_keep_no_cast_of_a_matrix_for_the_backward_pass() -> None:
    autocast = saved_bytes(Toy(), CPU, BF16, torch.float32)
    working = saved_bytes(Toy(), CPU, BF16, torch.bfloat16)
    assert autocast.at(0, 0) - working.at(0, 0) == pytest.approx(2 * MATRIX, abs=1)
    # Each token's id and its embedding, mean and deviation for the normalisation, and the product's bf16 input.
    assert working.at(1, 1) - working.at(0, 0) == pytest.approx(8 + 4 * WIDTH + 4 + 4 + 2 * WIDTH, abs=1)
