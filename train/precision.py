"""The arithmetic of the forward and backward pass, chosen by what this machine is fast at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from testbed.errors import UserError
from testbed.progress import say
from train.ceilings import DTYPES, product_flops_per_s
from train.config import PrecisionChoice

# Autocast adds casts around every product: a narrower type must be clearly faster to be worth it.
WORTH_IT = 1.5
# A product as a small BERT has it: tokens of a batch × hidden size × feed-forward size.
TYPICAL_PRODUCT = (1024, 384, 1536)
MEASURE_S = 0.1


@dataclass(frozen=True)
class Precision:
    """A choice with its reason.

    Attributes:
        name: ``fp32``, ``bf16`` or ``fp16``.
        reason: why, with the figures that decided it.
    """

    name: str
    reason: str

    def autocast(self, device: torch.device) -> torch.autocast | nullcontext[None]:
        """Return the context of a forward pass."""
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(device.type, dtype=DTYPES[self.name])

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Return the loss scaler: FP16's small gradients would vanish without it; otherwise it does nothing."""
        return torch.amp.GradScaler(device.type, enabled=self.name == "fp16")


@contextmanager
def tf32_products(allowed: bool, device: torch.device) -> Iterator[None]:
    """Let an NVIDIA GPU's FP32 products be made in TF32, or not, inside the block; a CPU's are left as they are.

    The setting is the whole process's. This function of torch's keeps its newer settings by backend and its older
    switches in step, which torch.compile reads both of.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def choose(choice: PrecisionChoice, device: torch.device) -> Precision:
    """Return the precision to train in.

    ``auto`` takes bf16 where its products are at least 1.5 times as fast as FP32's, else FP32; FP16 is for who asks for
    it, as it needs loss scaling and is no faster than bf16 where both have units.

    Raises:
        UserError: bf16 asked for on a GPU that has none.
    """
    if choice == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        msg = f"precision bf16: {torch.cuda.get_device_name(device)} has no bf16 units; help: precision: fp16 or auto"
        raise UserError(msg)
    wide, narrow = (
        product_flops_per_s(dtype, device, TYPICAL_PRODUCT, seconds=MEASURE_S)
        for dtype in ("fp32", choice if choice in {"bf16", "fp16"} else "bf16")
    )
    ratio = narrow / wide
    name = ("bf16" if ratio >= WORTH_IT else "fp32") if choice == "auto" else choice
    measured = "bf16" if choice in {"auto", "fp32"} else choice
    shape = "×".join(map(str, TYPICAL_PRODUCT))
    figures = f"{measured} products ran at {ratio:.2f}× FP32's rate here ({narrow / 1e9:,.0f} against "
    figures += f"{wide / 1e9:,.0f} GFLOP/s, {shape}, {torch.get_num_threads()} threads, {device.type})"
    if choice == "auto":
        return Precision(name, f"measured: {figures}")
    if name != "fp32" and ratio < 1:
        say(f"warning: precision {name} was asked for, but {figures}; help: precision: auto")
    return Precision(name, f"asked for; {figures}")
