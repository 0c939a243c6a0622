"""A variant against its parent on the test split, and against itself alone, batched, padded and packed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantize.config import InvarianceBound, QuantizeConfig
from quantize.session import Logits, Packed, Padded, Rows, run_in_batches
from testbed.metrics import accuracy, agreement, paired_difference
from testbed.records import InvarianceCheck, Verification

MATES = (8, 32)
PADDED_LENGTHS = (16, 32, 64, 128)
PACKED_TEXTS = 8
# A one-sided 95 % bound is the lower end of the two-sided 90 % interval.
ONE_SIDED_LEVEL = 0.90


def compare(
    logits: Logits,
    *,
    labels: Sequence[int],
    parent: str,
    parent_logits: Logits,
    invariance: tuple[InvarianceCheck, ...] = (),
) -> Verification | None:
    """Return the figures of a variant against its parent, or None where a logit is NaN or infinite.

    Args:
        logits: of the variant, each text alone, [texts, labels].
        labels: the true ones.
        parent: its name.
        parent_logits: of the same texts.
        invariance: the variant against itself.
    """
    if not bool(np.isfinite(logits).all()):
        return None
    truth = np.asarray(labels, dtype=np.int64)
    own, parents = logits.argmax(axis=1), parent_logits.argmax(axis=1)
    difference, interval = paired_difference(own == truth, parents == truth)
    _, one_sided = paired_difference(own == truth, parents == truth, level=ONE_SIDED_LEVEL)
    return Verification(
        accuracy=accuracy(own, truth),
        parent=parent,
        accuracy_difference=difference,
        difference_interval=interval,
        difference_lower_bound=one_sided.low,
        agreement=agreement(own, parents),
        max_logit_difference=float(np.abs(logits - parent_logits).max()),
        all_finite=True,
        batch_flip_rate=max((check.flip_rate for check in invariance), default=None),
        batch_max_logit_change=max((check.max_logit_change for check in invariance), default=None),
        invariance=invariance,
    )


def check_invariance(
    padded: Padded, packed: Packed | None, rows: Rows, alone: Logits, *, num_texts: int, max_length: int, seed: int = 0
) -> tuple[InvarianceCheck, ...]:
    """Return how answers change with batch-mates, padding and packing.

    Args:
        padded: the variant's padded layout.
        packed: its packed one, or None.
        rows: token ids of the test texts.
        alone: their logits, each computed alone and unpadded.
        num_texts: texts compared under each condition, drawn at random.
        max_length: padding beyond it is not tried.
        seed: draws the texts and their mates.
    """
    order = np.random.default_rng(seed).permutation(len(rows))[:num_texts]
    some, expected = [rows[index] for index in order], alone[order]
    checks = [
        _check(f"batch of {size}", run_in_batches(padded, some, size=size), expected)
        for size in MATES
        if len(some) >= size
    ]
    for length in dict.fromkeys(min(length, max_length) for length in PADDED_LENGTHS):
        wider = Padded(padded.session, pad_token_id=padded.pad_token_id, length=length)
        short = [index for index, row in enumerate(some) if len(row) <= length]
        if short:
            found = run_in_batches(wider, [some[index] for index in short], size=1)
            checks.append(_check(f"padded to {length}", found, expected[short]))
    if packed is not None:
        found = run_in_batches(packed, some, size=PACKED_TEXTS)
        checks.append(_check(f"packed by {PACKED_TEXTS}", found, expected))
    return tuple(checks)


def broken_bound(verification: Verification, bound: InvarianceBound) -> str | None:
    """Return which condition breaks the bound on invariance, with its figures, or None where all keep it."""
    for check in verification.invariance:
        if check.flip_rate > bound.flip_rate or check.max_logit_change > bound.logit_change:
            return (
                f"{check.condition}: {check.flip_rate:.1%} of labels and logits by up to {check.max_logit_change:.3f} "
                f"differ from the text alone; allowed are {bound.flip_rate:.1%} and {bound.logit_change:g}"
            )
    return None


def accuracy_loss(verification: Verification, config: QuantizeConfig) -> str | None:
    """Return what to warn of where the variant is not shown to be non-inferior to its parent, or None."""
    bound = verification.difference_lower_bound
    assert bound is not None
    if bound >= -config.accuracy_points / 100:
        return None
    return (
        f"accuracy {100 * verification.accuracy_difference:+.1f} points against {verification.parent}, "
        f"95 % bound {100 * bound:+.1f}: not shown to be within {config.accuracy_points:g} point(s)"
    )


def _check(condition: str, found: Logits, expected: NDArray[np.float32]) -> InvarianceCheck:
    return InvarianceCheck(
        condition=condition,
        num_texts=len(expected),
        flip_rate=float((found.argmax(axis=1) != expected.argmax(axis=1)).mean()),
        max_logit_change=float(np.abs(found - expected).max()),
    )
