"""The lean road: one inference request on its connection, from its head to the one write of its answer.

Its way: take (body) → Codec.decode → Model.submit → (lane) → Codec.encode → write. What has no chance to be in time is
refused before its body is parsed.
"""

from __future__ import annotations

import functools
import logging
import re
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools

from serve import instruments
from serve.bodies import check_announced, compress, decompress, too_large
from serve.config import Limits
from serve.errors import ClientLeft, Internal, OutOfMemory, ServeError, Shed
from serve.jobs import Job
from serve.model import Model
from serve.protocols.codec import Ask, Headers, Reply, positive_number
from serve.replies import CLOSE, REQUEST_ID_HEADER, Heads, error_reply, printable, timing
from serve.repository import Repository
from serve.routes import Target, route
from serve.security import KeyRing

if TYPE_CHECKING:
    from serve.connection import Connection
    from serve.traces import Traces

logger = logging.getLogger(__name__)
access = logging.getLogger("serve.access")

TIMEOUT_HEADER = b"x-breakeven-timeout-ms"
PRIORITY_HEADER = b"x-breakeven-priority"
PROOF_HEADER = b"x-breakeven-proof"
OK = HTTPStatus.OK.value
# A body with one of these words may have wishes of its own: it is parsed before it is judged.
WISHES = re.compile(b"timeout|priority")


@dataclass
class Desk:
    """What every exchange of a worker needs.

    Attributes:
        repository: the models.
        limits: what a client may ask for.
        keys: who may ask.
        log_access: one line for every inference request.
        traces: where spans go; None = nowhere.
        draining: answers say ``Connection: close``.
        heads: the parts that all answers' heads have in common.
    """

    repository: Repository
    limits: Limits
    keys: KeyRing
    log_access: bool
    traces: Traces | None = None
    draining: bool = False
    heads: Heads = field(default_factory=Heads)


class Exchange:
    """A request and its answer. To uvicorn it is the connection's current cycle.

    Args:
        connection: where it came in and goes out.
        target: what is asked of which model.
        headers: names in lower case.

    Attributes:
        response_complete, keep_alive: as uvicorn's cycles have them.
    """

    __slots__ = (
        "_arrived_s",
        "_ask",
        "_body",
        "_connection",
        "_desk",
        "_expects_word",
        "_headers",
        "_is_turn",
        "_is_whole",
        "_job",
        "_model",
        "_refused",
        "_target",
        "keep_alive",
        "response_complete",
    )

    def __init__(self, connection: Connection, target: Target, headers: Headers) -> None:
        self._arrived_s = time.monotonic()
        self._connection = connection
        self._desk = connection.desk
        self._target = target
        self._headers = headers
        self._body: bytes | bytearray = b""
        self._is_turn = self._is_whole = self.response_complete = False
        self._ask: Ask | None = None
        self._job: Job | None = None
        self._model: Model | None = None
        self._refused: ServeError | None = None
        parser = connection.parser
        is_old = parser.get_http_version() == "1.0"
        self._expects_word = connection.expect_100_continue and not is_old  # HTTP/1.0 knows no word before the answer
        self.keep_alive = parser.should_keep_alive() and not is_old
        try:
            self._desk.keys.check(headers)
            check_announced(headers, most_bytes=self._desk.limits.body_bytes)
        except ServeError as error:
            self._refused = error

    def take(self, part: bytes) -> None:
        """Take a part of the body; more than the limit is not kept."""
        if self._refused is not None:
            return
        # Nearly every body comes in one part, which is not copied.
        if not self._body:
            self._body = part
        elif isinstance(self._body, bytes):
            self._body = bytearray(self._body + part)
        else:
            self._body += part
        if len(self._body) > self._desk.limits.body_bytes:
            self._body = b""
            self._refused = too_large(self._desk.limits.body_bytes)
            self._go_on()

    def be_whole(self) -> None:
        """Go on: the body is there."""
        self._is_whole = True
        self._go_on()

    def take_turn(self) -> None:
        """Go on: whatever came before it on its connection has been answered."""
        self._is_turn = True
        self._connection.answering = self
        if self._expects_word and not self._is_whole and self._refused is None:
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._go_on()

    def leave(self) -> None:
        """The client has gone: its rows are dropped before they reach a batch."""
        if self._job is not None:
            self._job.fail(ClientLeft())

    def _go_on(self) -> None:
        if not self._is_turn or self.response_complete or self._job is not None:
            return
        if self._refused is None and not self._is_whole:
            return
        self._attempt(self._submit)

    def _attempt(self, step: Callable[[], None]) -> None:
        """Take a step; whatever goes wrong is answered; where not even that is possible, the connection is cut off.

        An exception that left this class would be taken for a fault in the client's HTTP, or cost the other requests of
        a batch their answers.
        """
        try:
            self._take_step(step)
        except Exception:
            self.response_complete = True
            self._connection.transport.abort()
            logger.exception("an error could not be answered")

    def _take_step(self, step: Callable[[], None]) -> None:
        """Take a step, and answer what goes wrong in the form that all errors have."""
        try:
            step()
        except ClientLeft:
            assert self._model is not None
            self._model.tally.left()
            self.response_complete = True
        except ServeError as error:
            self._answer_error(error)
        except MemoryError:
            self._answer_error(OutOfMemory("there was no memory for this request; help: send a shorter one"))
        except Exception:
            logger.exception("unexpected")
            self._answer_error(Internal("internal error; help: see the server's log"))

    def _submit(self) -> None:
        if self._refused is not None:
            raise self._refused
        desk, headers = self._desk, self._headers
        model = self._model = desk.repository.get(self._target.model, self._target.version)
        if (refused := self._unread_refusal(model)) is not None:
            self._answer_error(refused)
            return
        encoding = headers.get(b"content-encoding")
        body = bytes(self._body)
        if encoding is not None:
            body = decompress(body, encoding, most_bytes=desk.limits.body_bytes)
        self._ask = ask = self._target.codec.decode(body, headers, desk.limits)
        read_wishes(ask, headers)
        self._job = model.submit(ask, arrived_s=self._arrived_s, on_over=self._finish)
        model.in_flight += 1
        self._body = b""

    def _unread_refusal(self, model: Model) -> Shed | None:
        """Return why it would be late, before it is parsed: under overload most of the work is refusing."""
        refused = model.refusal(len(self._body), arrived_s=self._arrived_s)
        if refused is None:
            return None
        headers = self._headers
        if TIMEOUT_HEADER in headers or PRIORITY_HEADER in headers or b"content-encoding" in headers:
            return None
        return None if WISHES.search(self._body) else refused

    def _finish(self) -> None:
        assert self._model is not None
        self._model.in_flight -= 1
        self._attempt(self._answer_result)

    def _answer_result(self) -> None:
        ask, job, model = self._ask, self._job, self._model
        assert ask is not None
        assert job is not None
        assert model is not None
        if job.error is not None:
            raise job.error
        encoding_s = time.monotonic()
        reply = self._target.codec.encode(ask, job, model.card)
        now_s = time.monotonic()
        job.serialise_s = now_s - encoding_s
        add_headers(reply, self._headers, model)
        self._write(OK, reply, now_s - self._arrived_s)
        # The client need not wait for the counting.
        model.tally.answered(job, total_s=now_s - self._arrived_s)

    def _answer_error(self, error: ServeError) -> None:
        if self.response_complete:
            return
        if self._model is not None:
            if isinstance(error, Shed):
                self._model.tally.shed(error.reason)
            self._model.tally.failed(error.reason)
        self._write(error.status, error_reply(error), time.monotonic() - self._arrived_s)

    def _write(self, status: int, reply: Reply, total_s: float) -> None:
        connection, desk = self._connection, self._desk
        closes = desk.draining or not self.keep_alive or CLOSE in reply.headers
        if (request_id := self._headers.get(REQUEST_ID_HEADER)) is not None and printable(request_id):
            reply.headers.append((REQUEST_ID_HEADER, request_id))
        head = desk.heads.head(
            status, reply, timing(total_s, self._job), closes=closes, common=connection.server_state.default_headers
        )
        self.response_complete = True
        connection.answering = None
        if not connection.transport.is_closing():
            connection.transport.write(head + reply.body)
            if closes:
                connection.transport.close()
        connection.on_response_complete()
        model, protocol = self._model.card.name if self._model else "", self._target.codec.name
        instruments.count_request(model, protocol, status)
        if desk.traces is not None:
            desk.traces.record(
                model=model, protocol=protocol, headers=self._headers, status=status, seconds=total_s, job=self._job
            )
        if desk.log_access:
            log_access(connection.url, status, total_s, self._headers, self._job)


@functools.lru_cache(maxsize=256)
def target_of(url: bytes) -> Target | None:
    """Return what a POST to this URL asks of which model; None where it is not inference."""
    path: bytes = httptools.parse_url(url).path
    return route(urllib.parse.unquote(path.decode("ascii")))


def read_wishes(ask: Ask, headers: Headers) -> None:
    """Take timeout and priority from headers, for the protocols that have no field for them."""
    timeout = headers.get(TIMEOUT_HEADER)
    if timeout is not None:
        number = float(timeout) if timeout.replace(b".", b"", 1).isdigit() else None
        ask.timeout_s = positive_number(number, "X-Breakeven-Timeout-Ms") / 1e3
    if headers.get(PRIORITY_HEADER) == b"high":
        ask.urgent = True


def add_headers(reply: Reply, headers: Headers, model: Model) -> None:
    """Compress where the client accepts it, and prove what ran where it asks."""
    accepted = headers.get(b"accept-encoding")
    if accepted is not None:
        reply.body, encoding = compress(reply.body, accepted)
        if encoding is not None:
            reply.headers.append((b"content-encoding", encoding))
    if PROOF_HEADER in headers:
        reply.headers += model.card.proof_headers()


def log_access(url: bytes, status: int, seconds: float, headers: Headers, job: Job | None) -> None:
    """Log one request: what was asked and how it went, never its texts or its keys."""
    figures = {
        "path": url.decode("latin-1"),
        "status": status,
        "request_id": headers.get(REQUEST_ID_HEADER, b"").decode("latin-1") or None,
        "seconds": round(seconds, 6),
        "texts": len(job.labels) if job else None,
    }
    access.info("request", extra={"figures": figures})
