"""How answers look on the wire: the parts of their heads, errors, and where the time went."""

from __future__ import annotations

import re
from http import HTTPStatus

import orjson

from serve.errors import MethodNotAllowed, ServeError, TooLarge
from serve.jobs import Job
from serve.protocols.codec import Reply

REQUEST_ID_HEADER = b"x-request-id"
CLOSE = (b"connection", b"close")
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
PRINTABLE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class Heads:
    """Makes heads of answers; what does not change between two of them is joined once."""

    def __init__(self) -> None:
        self._common: list[tuple[bytes, bytes]] = []
        self._joined = b""

    def head(
        self, status: int, reply: Reply, server_timing: bytes, *, closes: bool, common: list[tuple[bytes, bytes]]
    ) -> bytes:
        """Return a head, its empty line included.

        Args:
            status: HTTP status.
            reply: its body's length and type, and its own headers.
            server_timing: the value of that header.
            closes: the connection ends behind this answer.
            common: uvicorn's headers, ``Date`` among them: a new list whenever it changes.
        """
        if common is not self._common:
            self._common = common
            self._joined = _lines(common)
        own = _lines([header for header in reply.headers if header != CLOSE]) if reply.headers else b""
        return b"%s%scontent-type: %s\r\ncontent-length: %d\r\nserver-timing: %s\r\n%s%s\r\n" % (
            STATUS_LINES[status],
            self._joined,
            reply.content_type,
            len(reply.body),
            server_timing,
            own,
            b"connection: close\r\n" if closes else b"",
        )


def error_reply(error: ServeError) -> Reply:
    """Return the body that every protocol's clients understand, with the reason in one word."""
    headers = [] if error.retry_after_s is None else [(b"retry-after", str(error.retry_after_s).encode())]
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if isinstance(error, TooLarge):
        headers.append(CLOSE)  # what is still on its way is not worth reading
    return Reply(orjson.dumps({"error": str(error), "reason": error.reason}), headers=headers)


def timing(total_s: float, job: Job | None = None) -> bytes:
    """Return the Server-Timing header's value: milliseconds by part, and in all (W3C Server Timing)."""
    if job is None or job.batch is None:
        return b"total;dur=%.3f" % (total_s * 1e3)
    return b"queue;dur=%.3f, %s, serialise;dur=%.3f, total;dur=%.3f" % (
        job.queue_s * 1e3,
        job.batch.timing,
        job.serialise_s * 1e3,
        total_s * 1e3,
    )


def printable(value: bytes) -> bool:
    """Return whether a client's header may be sent back to it: nothing in it ends a line."""
    return PRINTABLE.fullmatch(value) is not None


def _lines(headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s: %s\r\n" % header for header in headers)
