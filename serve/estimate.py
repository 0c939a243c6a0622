"""Tokens of a text before it is tokenized, from its bytes: good enough to admit by."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.records.bundle import BundleManifest

# Of a text's tokens, those that every text has: the one before it and the one after it.
SPECIAL_TOKENS = 2
# What a batch leaves of the weight of those before it.
KEPT_SHARE = 0.95


class TokenEstimate:
    """Guesses from the tokens a byte of the texts that were served last, and until then of the manifest's goldens.

    The lane's thread learns while the event loop asks: what is asked for is one number, written once a batch.

    Args:
        manifest: its ``max_length`` bounds the estimate.
    """

    def __init__(self, manifest: BundleManifest) -> None:
        self._max_length = manifest.max_length
        self._num_bytes, self._num_tokens = 0.0, 0.0
        self._tokens_per_byte = 0.25  # as in English, until a text has said more
        self.learn([golden.text for golden in manifest.goldens], [golden.input_ids for golden in manifest.goldens])

    def learn(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
        """Take in the token ids that texts turned out to have; those that were cut off at max_length say nothing."""
        whole = [(text, row) for text, row in zip(texts, ids, strict=True) if len(row) < self._max_length]
        num_bytes = sum(len(text.encode()) for text, _ in whole)
        if num_bytes:
            self._num_bytes = self._num_bytes * KEPT_SHARE + num_bytes
            self._num_tokens = self._num_tokens * KEPT_SHARE + sum(len(row) - SPECIAL_TOKENS for _, row in whole)
            self._tokens_per_byte = self._num_tokens / self._num_bytes

    def most(self, num_bytes: int) -> float:
        """Return the estimate for a body, as if it were nothing but text."""
        return SPECIAL_TOKENS + num_bytes * self._tokens_per_byte

    def of(self, text: str) -> int:
        """Return the estimate for one text."""
        return min(self._max_length, round(SPECIAL_TOKENS + len(text.encode()) * self._tokens_per_byte))
