"""Saves checkpoints into a folder until its disk is full; prints what was said and what is still whole."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from testbed.errors import UserError
from train.checkpoint import About, Checkpoints


def main() -> None:
    """Save step after step; a full disk must come before the hundredth."""
    checkpoints = Checkpoints(Path(sys.argv[1]))
    steps = Path(sys.argv[2])
    for step in range(1, 100):
        about = About(step=step, epoch=0, batch=step, precision="fp32", precision_reason="", epochs=(), phases={})
        try:
            # each is larger than the one before, so that the disk fills up although old ones are dropped
            checkpoints.save(about, {"model": torch.full((step * 40_000,), float(step))}, steps)
        except UserError as error:
            print(error)
            break
    saved = Checkpoints(Path(sys.argv[1])).latest()
    assert saved is not None
    print(f"whole: step {saved.about.step}, {bool((saved.state['model'] == saved.about.step).all())}")
    print("left over:", sorted(path.name for path in Path(sys.argv[1]).glob(".*")))


if __name__ == "__main__":
    main()
