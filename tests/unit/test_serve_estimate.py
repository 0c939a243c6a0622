"""Tokens guessed from bytes: on the texts that gave the ratio, the guess is right on the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve.estimate import TokenEstimate
from testbed.bundle import Bundle


def test_the_estimate_counts_special_tokens_once(tiny_bundle: Path) -> None:
    manifest = Bundle(tiny_bundle).manifest
    estimate = TokenEstimate(manifest)
    whole = [golden for golden in manifest.goldens if len(golden.input_ids) < manifest.max_length]
    assert len(whole) == len(manifest.goldens)  # none cut off, or the sum below would be too small
    tokens = sum(len(golden.input_ids) for golden in whole)
    assert sum(estimate.of(golden.text) for golden in whole) == pytest.approx(tokens, abs=len(whole) / 2)
    assert sum(estimate.most(len(golden.text.encode())) for golden in whole) == pytest.approx(tokens, rel=1e-9)


def test_the_estimate_follows_the_texts_that_are_served(tiny_bundle: Path) -> None:
    estimate = TokenEstimate(Bundle(tiny_bundle).manifest)
    for _ in range(200):
        estimate.learn(["a" * 20, "b" * 60], [range(2 + 5), range(2 + 15)])  # four bytes a token
    assert estimate.of("c" * 40) == 2 + 10
    cut_off = range(Bundle(tiny_bundle).manifest.max_length)
    for _ in range(200):
        estimate.learn(["d" * 10_000], [cut_off])
    assert estimate.of("c" * 40) == 2 + 10


def test_no_text_is_longer_than_the_model_takes(tiny_bundle: Path) -> None:
    manifest = Bundle(tiny_bundle).manifest
    assert TokenEstimate(manifest).of("word " * 10_000) == manifest.max_length
