"""One client's connection: uvicorn's, with a time limit on incomplete requests and a road of its own for inference.

Every request that is not inference takes uvicorn's road through ASGI to FastAPI. An inference request becomes an
Exchange instead: no scope, no task, no events. It stands in uvicorn's pipeline where a cycle of its own would stand,
so answers keep the order of their requests, whichever road they take.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serve.exchange import Desk, Exchange, target_of
from serve.replies import STATUS_LINES


def _last_words(status: HTTPStatus, error: str, reason: str) -> bytes:
    """Return a whole answer behind which the connection ends."""
    body = orjson.dumps({"error": error, "reason": reason})
    head = b"%scontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (STATUS_LINES[status], len(body)) + body


TOO_LATE = _last_words(HTTPStatus.REQUEST_TIMEOUT, "the request came too slowly", "too_slow")
TOO_LARGE_HEAD = _last_words(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head of the request is too large", "too_large"
)
NO_HTTP = _last_words(HTTPStatus.BAD_REQUEST, "this is not HTTP/1; help: see docs/serving.md", "invalid_http")
HEAD_BYTES = 64 * 2**10


class Connection(HttpToolsProtocol):
    """Adds to uvicorn's protocol what it leaves out.

    A request must be whole within ``receive_s`` seconds of its first byte, its head within ``HEAD_BYTES``; a connection
    without any request is closed after the keep-alive time; jobs of a client that leaves are told so.
    """

    receive_s: ClassVar[float]
    desk: ClassVar[Desk]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.last_byte_s = self.loop.time()
        self.answering: Exchange | None = None
        self._incomplete = False
        self._in_head = False
        self._is_broken = False
        self._head_bytes = 0
        self._limit: asyncio.TimerHandle | None = None
        self._idle_check = self.loop.call_later(self.timeout_keep_alive, self._close_idle)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and limit the time that a request may stay incomplete."""
        if self._is_broken:
            return
        self.last_byte_s = self.loop.time()
        if self._incomplete:
            self._head_bytes += len(data)
        self._parse(data)
        if self._is_broken or not self._incomplete:
            self._lift_limit()
        elif self._head_bytes > HEAD_BYTES and self._in_head:
            self._end_with(TOO_LARGE_HEAD)
        elif self._limit is None:
            self._limit = self.loop.call_later(self.receive_s, self._too_late)

    def on_message_begin(self) -> None:
        """Note that a request has begun; its scope waits until its path is known."""
        self._incomplete, self._in_head, self._head_bytes = True, True, 0
        self._lift_limit()
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        """Choose the road of the request."""
        if self.parser.should_upgrade():  # the parser takes no body behind it: it comes again, without
            return
        self._in_head = False
        if self.parser.get_method() == b"POST" and (target := target_of(self.url)) is not None:
            self._begin_exchange(Exchange(self, target, dict(self.headers)))
            return
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)  # the scope holds this very list
        self.url, self.expect_100_continue = url, expect
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        if isinstance(self.cycle, Exchange):
            self.cycle.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a request is whole."""
        if self.parser.should_upgrade():
            return
        self._incomplete = False
        if isinstance(self.cycle, Exchange):
            self.cycle.be_whole()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, but read no more from a client that does not read its answers.

        uvicorn's own begins and ends a timer for every answer here; ``_close_idle`` is one a connection.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.last_byte_s = self.loop.time()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._is_broken:
            self._end_with(NO_HTTP)
            return
        if not self.flow.write_paused:
            self.flow.resume_reading()
        elif not self.flow.read_paused:
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Read on: the client has taken its answers."""
        super().resume_writing()
        if not self.pipeline:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request in hand that nobody waits for it."""
        self._lift_limit()
        self._idle_check.cancel()
        if self.answering is not None:
            self.answering.leave()
        if isinstance(self.cycle, Exchange):
            self.cycle = None  # type: ignore[assignment]  # what uvicorn tells its own cycles here, ours know already
        super().connection_lost(exc)

    def quiet_s(self) -> float | None:
        """Return the seconds since an idle connection's last byte, in or out; None while a request is in hand."""
        idle = not self._incomplete and (self.cycle is None or self.cycle.response_complete)
        return self.loop.time() - self.last_byte_s if idle else None

    def _parse(self, data: bytes) -> None:
        """Feed the parser; wishes for another protocol are ignored (RFC 9110, 7.8), as Java's client sends with a POST.

        The parser would take what follows such a head for the other protocol, so it gets the head again without.
        """
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self.parser.get_method() != b"CONNECT":  # which has no other meaning
                    data = self._head_without_upgrade() + data[upgrade.args[0] :]
                    continue
                self._break_off()
            except httptools.HttpParserError:
                self._break_off()
            return

    def _break_off(self) -> None:
        """Say that what came is no HTTP, behind the answers that are due, and end there."""
        self._is_broken = True
        is_due = self.cycle is not None and not self.cycle.response_complete
        if self._incomplete and not self._in_head:  # within a body: its request gets this answer instead of its own
            is_due = bool(self.pipeline)
            if is_due:
                self.pipeline.popleft()
        if is_due:
            self.flow.pause_reading()
        else:
            self._end_with(NO_HTTP)

    def _head_without_upgrade(self) -> bytes:
        parser = self.parser
        lines = [b"%s %s HTTP/%s" % (parser.get_method(), self.url, parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _begin_exchange(self, exchange: Exchange) -> None:
        before: Any = self.cycle
        self.cycle = exchange  # type: ignore[assignment]  # it has what uvicorn asks of a cycle
        if before is None or before.response_complete:
            exchange.take_turn()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        if isinstance(cycle, Exchange):
            # Not at once: a long pipeline of requests that are refused would be as deep a recursion.
            self.loop.call_soon(cycle.take_turn)
        else:
            super()._start_asgi_task(cycle, app)

    def _lift_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _close_idle(self) -> None:
        """Close a connection that has been idle for the keep-alive time, or look again when it could have been."""
        quiet_s = self.quiet_s() or 0.0
        if quiet_s >= self.timeout_keep_alive:
            self._end_with(b"")
        else:
            self._idle_check = self.loop.call_later(self.timeout_keep_alive - quiet_s, self._close_idle)

    def _too_late(self) -> None:
        """Say that a request came too slowly; the one before it is answered first."""
        cycle: Any = self.cycle
        waits = cycle is not None and not cycle.response_complete if self._in_head else bool(self.pipeline)
        if waits:
            self._limit = self.loop.call_later(self.receive_s, self._too_late)
        else:  # within an answer that has begun, as FastAPI's may before the body is there, nothing can be said
            self._end_with(b"" if not self._in_head and getattr(cycle, "response_started", False) else TOO_LATE)

    def _end_with(self, answer: bytes) -> None:
        self._lift_limit()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
