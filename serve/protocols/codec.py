"""What every protocol has in common: an Ask comes out of a body, a Reply out of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from serve.card import Card
from serve.config import Limits
from serve.errors import InvalidRequest, TooLarge
from serve.jobs import Job

Headers = Mapping[bytes, bytes]
JSON = b"application/json"
BEYOND_REASON = 1e15


@dataclass(slots=True)
class Ask:
    """What a client asked, whatever the protocol.

    Attributes:
        texts: one string a row, or None where token ids were sent.
        ids: token ids a row, or None.
        timeout_s: how long the client is willing to wait; None = the server's own deadline.
        urgent: of the upper priority class.
        request_id: the client's own name for the request.
        options: what the protocol needs again for the answer.
    """

    texts: list[str] | None
    ids: list[list[int]] | None = None
    timeout_s: float | None = None
    urgent: bool = False
    request_id: str | None = None
    options: Any = None


@dataclass(slots=True)
class Reply:
    """A finished body and the headers that belong to it."""

    body: bytes
    content_type: bytes = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


class Codec(Protocol):
    """One protocol.

    Attributes:
        name: its label in metrics.
    """

    name: str

    def decode(self, body: bytes, headers: Headers, limits: Limits) -> Ask:
        """Return what the body asks; raises InvalidRequest or TooLarge."""
        ...

    def encode(self, ask: Ask, job: Job, card: Card) -> Reply:
        """Return the answer of a finished job."""
        ...


def parse_object(body: bytes | memoryview) -> dict[str, Any]:
    """Return the JSON object of a body; raises InvalidRequest, or MemoryError where there is none to read it."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "Not enough memory" in str(error):  # it has no exception of its own for that
            raise MemoryError from None
        msg = f"the body is not JSON: {error}"
        raise InvalidRequest(msg) from None
    if not isinstance(found, dict):
        msg = f"the body is a JSON {type(found).__name__}, an object is needed"
        raise InvalidRequest(msg)
    return found


def check_texts(texts: Sequence[object], limits: Limits) -> list[str]:
    """Return the texts, each a non-empty string; raises InvalidRequest or TooLarge."""
    if not texts:
        raise InvalidRequest("no text was sent; help: send at least one")
    check_rows(len(texts), limits)
    checked: list[str] = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            msg = f"text {number} is a {type(text).__name__}, a string is needed"
            raise InvalidRequest(msg)
        if not text or text.isspace():
            msg = f"text {number} is empty"
            raise InvalidRequest(msg)
        # A character is at most four bytes: most texts need no encoding to know that they are short enough.
        if len(text) * 4 > limits.text_bytes and len(text.encode()) > limits.text_bytes:
            msg = f"text {number} has more than {limits.text_bytes} bytes"
            raise TooLarge(msg)
        checked.append(text)
    return checked


def check_rows(count: int, limits: Limits) -> None:
    """Raise TooLarge for more rows in one request than are allowed."""
    if count > limits.rows:
        msg = f"{count} rows in one request, at most {limits.rows} are taken; help: split it"
        raise TooLarge(msg)


def parameters_of(holder: dict[str, Any]) -> dict[str, Any]:
    """Return the optional ``parameters`` object; raises InvalidRequest where it is something else."""
    found = holder.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidRequest("parameters is not an object")
    return found


def whole_number(value: object) -> int | None:
    """Return a JSON value as the whole number that it is, 3.0 included; None where it is something else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def positive_number(value: object, name: str) -> float:
    """Return a number above zero; raises InvalidRequest that names the field."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < BEYOND_REASON:
        msg = f"{name} is {value!r}, a number above 0 is needed"
        raise InvalidRequest(msg)
    return float(value)
