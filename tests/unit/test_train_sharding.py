"""When a model is divided over the processes, and what that saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from testbed.errors import UserError
from testbed.machine import memory_bytes
from tests.tiny import LABELS, write_checkpoint
from train.ledger import Prediction, available_bytes
from train.model import layer_stack, load_classifier
from train.probe import BatchCost
from train.sharding import choose, gathered_bytes

# 4 × 100 bytes of weights, gradients and two optimiser states; a batch of 2 texts of 5 tokens keeps 100.
COPY = Prediction(parameters_bytes=100, activations=BatchCost((0.0, 0.0, 10.0, 0.0)), base_bytes=200)
BATCH = (2, 5)


@pytest.mark.parametrize(
    ("wanted", "world_size", "available_bytes", "found"),
    [
        ("auto", 1, 500, "none"),
        ("fsdp", 1, 500, "none"),
        ("auto", 2, 1000, "ddp"),
        ("auto", 2, 800, "fsdp"),
        ("ddp", 2, 800, "ddp"),
        ("fsdp", 2, 1000, "fsdp"),
    ],
)
def test_auto_shards_what_one_device_cannot_hold(
    wanted: str, world_size: int, available_bytes: int, found: str
) -> None:
    assert choose(wanted, COPY, BATCH, world_size=world_size, available_bytes=available_bytes) == found


def test_shards_divide_the_states_and_not_the_activations() -> None:
    shard = replace(COPY, num_shards=4, gathered_bytes=40)
    assert shard.fixed_bytes == 200 + 100 + 40
    ledger = shard.ledger(*BATCH, measured_peak_bytes=None)
    assert (ledger.parameters_bytes, ledger.gradients_bytes, ledger.optimizer_bytes) == (25, 25, 50)
    assert (ledger.activations_bytes, ledger.predicted_bytes) == (100, 440)
    shard.check(*BATCH, available_bytes=600)
    with pytest.raises(UserError, match=r"help: set train\.token_budget to 5 or less"):
        shard.check(*BATCH, available_bytes=500)


def test_processes_of_one_machine_share_its_memory() -> None:
    assert available_bytes(torch.device("cpu"), processes_here=3) == memory_bytes() // 3


def test_the_largest_layer_and_what_is_in_none_are_whole_at_once(tmp_path: Path) -> None:
    model = load_classifier(write_checkpoint(tmp_path / "model", num_layers=3), LABELS, seed=0)
    layer = sum(p.numel() for p in layer_stack(model)[0].parameters())
    everything = sum(p.numel() for p in model.parameters())
    assert gathered_bytes(model) == 2 * 4 * (everything - 2 * layer)
