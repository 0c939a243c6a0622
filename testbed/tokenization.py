"""Text to token ids by ``tokenizer.json`` alone, the same in training, export and serving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from testbed.records.files import RecordError


class TextTokenizer:
    """The fast tokenizer of a checkpoint, with padding off and truncation at ``max_length``.

    Published ``tokenizer.json`` files often hard-code padding and truncation of their own (MiniLM's pads everything
    to 128 tokens), so both are always set here.

    Args:
        path: a ``tokenizer.json``.
        max_length: tokens at most, special tokens counted.

    Raises:
        RecordError: the file is missing or is not a tokenizer.
    """

    def __init__(self, path: Path, *, max_length: int) -> None:
        if not path.is_file():
            msg = f"{path}: no tokenizer; help: save the fast tokenizer (tokenizer.json) beside the model"
            raise RecordError(msg)
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the tokenizers library raises plain Exception
            msg = f"{path}: not a tokenizer ({error}); help: save it again with save_pretrained"
            raise RecordError(msg) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length)
        self.max_length = max_length
        self.vocab_size = int(self._tokenizer.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text, special tokens included, at most ``max_length`` of them."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Return how many texts are longer than ``max_length`` tokens."""
        return sum(1 for encoding in self._tokenizer.encode_batch(list(texts)) if encoding.overflowing)
