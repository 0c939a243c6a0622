"""API keys: read once, kept as hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from serve.errors import Unauthorized
from testbed.errors import UserError

VARIABLE = "BREAKEVEN_API_KEYS"


class KeyRing:
    """The keys that open the server; an empty ring lets everybody in.

    Args:
        keys: in clear; only their SHA-256 is kept.
    """

    def __init__(self, keys: list[str]) -> None:
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise Unauthorized unless ``Authorization: Bearer KEY`` or ``X-API-Key: KEY`` holds one of the keys."""
        if not self._digests:
            return
        given = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        digest = hashlib.sha256(given).digest()
        # Every key is compared, so the time says nothing about which one came close.
        if not sum(hmac.compare_digest(digest, known) for known in self._digests):
            raise Unauthorized("no valid API key; help: send it as `Authorization: Bearer KEY`")


def read_keys(file: Path | None) -> KeyRing:
    """Return the keys of a file, one a line, and of the environment variable, separated by commas.

    Raises:
        UserError: the file cannot be read or holds no key.
    """
    keys = [key.strip() for key in os.environ.get(VARIABLE, "").split(",")]
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{file}: API keys cannot be read ({error}); help: a text file, one key a line"
            raise UserError(msg) from error
        if not any(lines):
            msg = f"{file}: holds no API key; help: one key a line"
            raise UserError(msg)
        keys += lines
    return KeyRing([key for key in keys if key])
