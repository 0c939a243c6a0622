"""torch.compile: refused early where it cannot work, and done before the first step, apart from the steps' time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import torch

from testbed.errors import UserError
from train.loader import Batch

# Batches that are looked through for one whose shape a compiler can generalise from.
CANDIDATES = 16
# A compiler's own complaint may be long.
REASON_CHARACTERS = 400


def require_compiler(device: torch.device) -> None:
    """Compile and run one addition. With nothing cached that takes some 10 s on a CPU, which the model then saves.

    Raises:
        UserError: it fails, most often for want of a C++ compiler (on a GPU, of Triton).
    """
    with explained():
        torch.compile(torch.add)(torch.ones(2, device=device), 1)


@contextmanager
def explained() -> Iterator[None]:
    """Turn a failure of torch.compile inside the block into a UserError with the beginning of its message."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        # What follows the first empty line is advice on debugging torch.
        reason = " ".join(str(error).strip().split("\n\n")[0].split())[:REASON_CHARACTERS]
        msg = f"train.compile: torch.compile does not work here ({reason}); help: install g++, or set compile: false"
        raise UserError(msg) from error


def typical(batches: Iterator[Batch]) -> Batch:
    """Return the first batch from whose shape the compiler can generalise, or else the first one.

    torch.compile takes two equal sizes for one and the same, and a size of 1 for a constant: code made from such a
    batch would be made again for the next one.
    """

    def general(batch: Batch) -> bool:
        rows, length = batch.input_ids.shape
        return rows > 1 and rows != length

    return max(islice(batches, CANDIDATES), key=general)
