"""The switch for TF32 products: set inside of its block alone, and by torch's older and newer names alike."""

from __future__ import annotations

import pytest
import torch

from train.precision import tf32_products

GPU = torch.device("cuda", 0)


def in_force() -> tuple[str, bool]:
    matmul = torch.backends.cuda.matmul
    return matmul.fp32_precision, matmul.allow_tf32


def test_products_are_in_tf32_inside_the_block_and_as_before_after_it() -> None:
    before = torch.get_float32_matmul_precision()
    with tf32_products(True, GPU):
        assert in_force() == ("tf32", True)
        with tf32_products(False, GPU):
            assert in_force() == ("ieee", False)
        assert in_force() == ("tf32", True)
    assert torch.get_float32_matmul_precision() == before


def test_a_training_that_fails_leaves_no_switch_behind() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(ZeroDivisionError), tf32_products(True, GPU):
        1 / 0  # noqa: B018
    assert torch.get_float32_matmul_precision() == before


def test_a_cpu_keeps_its_setting() -> None:
    before = torch.get_float32_matmul_precision()
    with tf32_products(True, torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == before
