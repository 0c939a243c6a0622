"""The texts that queries carry: the test split with its real length mix, or a user's file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.errors import UserError


def read_texts(path: Path) -> list[str]:
    """Return the texts of a JSONL or CSV file (column ``text``), or the lines of any other.

    Raises:
        UserError: no such file, no ``text``, or nothing in it.
    """
    try:
        texts = _parse(path)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot read texts ({error}); help: give a UTF-8 file with one text a line"
        raise UserError(msg) from error
    except (KeyError, TypeError, ValueError) as error:
        msg = f"{path}: a row has no field 'text' ({error!r}); help: name the column text, or give plain lines"
        raise UserError(msg) from error
    texts = [text for text in texts if text and text.strip()]
    if not texts:
        msg = f"{path}: no texts in this file; help: give one text a line"
        raise UserError(msg)
    return texts


def pick(num_texts: int, count: int, *, seed: int) -> NDArray[np.int64]:
    """Return the index of each query's text: whole shuffled passes, so that every run sees the same length mix."""
    rng = np.random.default_rng([seed, 1])
    passes = -(-count // num_texts)
    return np.concatenate([rng.permutation(num_texts) for _ in range(max(1, passes))])[:count].astype(np.int64)


def _parse(path: Path) -> list[str]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as stream:
            return [row["text"] for row in csv.DictReader(stream)]
    # Not splitlines(): a text may hold U+2028 or U+0085, which end no line of a file.
    lines = path.read_text(encoding="utf-8").split("\n")
    if path.suffix == ".jsonl":
        return [str(json.loads(line)["text"]) for line in lines if line.strip()]
    return lines
