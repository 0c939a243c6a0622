"""One client's connection: uvicorn's, with a time limit on incomplete requests and a word when the client leaves."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TOO_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 63\r\nconnection: close\r\n\r\n"
    b'{"error": "the request came too slowly", "reason": "too_slow"} '
)
HEAD_BYTES = 64 * 2**10


class Connection(HttpToolsProtocol):
    """Adds to uvicorn's protocol what it leaves out.

    A request must be whole within ``receive_s`` seconds of its first byte, its head within ``HEAD_BYTES``; a connection
    without any request is closed after the keep-alive time; jobs of a client that leaves are told so.
    """

    receive_s: ClassVar[float]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.last_byte_s = self.loop.time()
        self._incomplete = False
        self._head_bytes = 0
        self._limit: asyncio.TimerHandle | None = self.loop.call_later(self.timeout_keep_alive, self._too_late)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and limit the time that a request may stay incomplete."""
        self.last_byte_s = self.loop.time()
        if self._incomplete:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._incomplete:
            self._lift_limit()
        elif self._head_bytes > HEAD_BYTES and self.cycle_is_missing():
            self._too_late()
        elif self._limit is None:
            self._limit = self.loop.call_later(self.receive_s, self._too_late)

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._incomplete, self._head_bytes = True, 0
        self._lift_limit()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Note that a request is whole."""
        self._incomplete = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the job of the request in hand that nobody waits for it."""
        self._lift_limit()
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            state: dict[str, Any] = cycle.scope.get("state", {})
            if (job := state.get("job")) is not None:
                job.leave()
        super().connection_lost(exc)

    def cycle_is_missing(self) -> bool:
        """Return whether the head of the request in hand is still incomplete."""
        return self.cycle is None or self.cycle.scope is not self.scope

    def quiet_s(self) -> float | None:
        """Return the seconds since the last byte of an idle connection; None while a request is in hand."""
        idle = not self._incomplete and (self.cycle is None or self.cycle.response_complete)
        return self.loop.time() - self.last_byte_s if idle else None

    def _lift_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_late(self) -> None:
        self._limit = None
        if not self.transport.is_closing():
            if self._incomplete and self.cycle_is_missing():
                self.transport.write(TOO_LATE)
            self.transport.close()
