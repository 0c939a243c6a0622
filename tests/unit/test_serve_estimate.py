"""Tokens guessed from bytes: on the texts that gave the ratio, the guess is right on the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve.model import TokenEstimate
from testbed.bundle import Bundle


def test_the_estimate_counts_special_tokens_once(tiny_bundle: Path) -> None:
    manifest = Bundle(tiny_bundle).manifest
    estimate = TokenEstimate(manifest)
    whole = [golden for golden in manifest.goldens if len(golden.input_ids) < manifest.max_length]
    assert len(whole) == len(manifest.goldens)  # none cut off, or the sum below would be too small
    tokens = sum(len(golden.input_ids) for golden in whole)
    assert sum(estimate.of(golden.text) for golden in whole) == pytest.approx(tokens, abs=len(whole) / 2)
    assert sum(estimate.most(len(golden.text.encode())) for golden in whole) == pytest.approx(tokens, rel=1e-9)


def test_no_text_is_longer_than_the_model_takes(tiny_bundle: Path) -> None:
    manifest = Bundle(tiny_bundle).manifest
    assert TokenEstimate(manifest).of("word " * 10_000) == manifest.max_length
