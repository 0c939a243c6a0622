"""The lean road: inference requests are answered here, before FastAPI; everything else is passed on to it.

A request's way: read_body → Codec.decode → Model.submit → (lane) → Codec.encode → one write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import orjson

from serve import instruments
from serve.bodies import Receive, compress, read_body
from serve.config import Limits
from serve.errors import ClientLeft, MethodNotAllowed, ServeError, TooLarge
from serve.jobs import Job
from serve.model import Model
from serve.protocols.codec import Ask, Codec, Headers, Reply, positive_number
from serve.protocols.huggingface import HuggingFace
from serve.protocols.kserve_v1 import KServeV1
from serve.protocols.oip import OpenInference
from serve.repository import Repository
from serve.security import KeyRing

logger = logging.getLogger(__name__)
access = logging.getLogger("serve.access")

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OIP, HF, V1 = OpenInference(), HuggingFace(), KServeV1()
TIMEOUT_HEADER = b"x-breakeven-timeout-ms"
PRIORITY_HEADER = b"x-breakeven-priority"
PROOF_HEADER = b"x-breakeven-proof"
REQUEST_ID_HEADER = b"x-request-id"
OPEN_PATHS = frozenset({"/v2/health/live", "/v2/health/ready"})
PAGE = "/"
CLOSE = (b"connection", b"close")


class Front:
    """An ASGI application in front of another.

    Args:
        app: answers whatever is not inference.
        repository: the models.
        limits: what a client may ask for.
        keys: who may ask.
        log_access: one line for every inference request.
    """

    def __init__(
        self, app: Application, *, repository: Repository, limits: Limits, keys: KeyRing, log_access: bool
    ) -> None:
        self._app = app
        self._repository = repository
        self._limits = limits
        self._keys = keys
        self._log_access = log_access
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = route(scope["path"])
        if found is not None and scope["method"] == "POST":
            await self._infer(*found, scope, receive, send)
            return
        arrived_s = time.monotonic()
        try:
            if found is not None and not (scope["method"] == "GET" and scope["path"] == PAGE):
                msg = f"{scope['method']} {scope['path']}: inference is asked for by POST"
                raise MethodNotAllowed(msg, allowed="GET, POST" if scope["path"] == PAGE else "POST")
            if scope["path"] not in OPEN_PATHS:
                self._keys.check(dict(scope["headers"]))
        except ServeError as error:
            await self._send(send, error.status, error_reply(error), timing(arrived_s, None))
            return
        await self._app(scope, receive, self._timed(send, arrived_s))

    async def _infer(
        self, codec: Codec, name: str | None, version: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        arrived_s = time.monotonic()
        job: Job | None = None
        model: Model | None = None
        try:
            headers = dict(scope["headers"])
            self._keys.check(headers)
            self._repository.get(name, version)
            body = await read_body(receive, headers, most_bytes=self._limits.body_bytes)
            ask = codec.decode(body, headers, self._limits)
            read_wishes(ask, headers)
            # Not before the body was read: meanwhile another version may have taken over.
            model = self._repository.get(name, version)
            job = model.submit(ask, arrived_s=arrived_s)
            scope["state"]["job"] = job  # Connection.connection_lost looks for it
            model.in_flight += 1
            try:
                await job.future
            finally:
                model.in_flight -= 1
            encoding_s = time.monotonic()
            reply = codec.encode(ask, job, model.card)
            job.spent.serialise_s = time.monotonic() - encoding_s
            add_headers(reply, headers, model)
            status = HTTPStatus.OK.value
        except ClientLeft:
            if model is not None:
                model.tally.left()
            return
        except ServeError as error:
            status, reply = error.status, error_reply(error)
            if model is not None:
                model.tally.failed(error.reason)
        total_s = time.monotonic() - arrived_s
        await self._send(send, status, reply, timing(arrived_s, job))
        # The client need not wait for the counting.
        instruments.count_request(model.card.name if model else "", codec.name, status)
        if job is not None and model is not None and status == HTTPStatus.OK:
            model.tally.answered(texts=len(job.labels), spent=job.spent, total_s=total_s)
        if self._log_access:
            log_access(scope, status, arrived_s, job)

    async def _send(self, send: Send, status: int, reply: Reply, server_timing: bytes) -> None:
        headers = [
            (b"content-type", reply.content_type),
            (b"content-length", str(len(reply.body)).encode()),
            (b"server-timing", server_timing),
            *reply.headers,
        ]
        if self.draining:
            headers.append(CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    def _timed(self, send: Send, arrived_s: float) -> Send:
        async def timed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"server-timing", timing(arrived_s, None))]
                if self.draining:
                    message["headers"].append(CLOSE)
            await send(message)

        return timed


def route(path: str) -> tuple[Codec, str | None, str | None] | None:
    """Return codec, model name and version of an inference path; None for every other one."""
    match path.split("/")[1:]:
        case [""] | ["predict"]:
            return HF, None, None
        case ["v2", "models", name, "infer"]:
            return OIP, name, None
        case ["v2", "models", name, "versions", version, "infer"]:
            return OIP, name, version
        case ["v1", "models", target] if target.endswith(":predict"):
            return V1, target.removesuffix(":predict"), None
    return None


def read_wishes(ask: Ask, headers: Headers) -> None:
    """Take timeout, priority and request id from headers, for the protocols that have no field for them."""
    timeout = headers.get(TIMEOUT_HEADER)
    if timeout is not None:
        number = float(timeout) if timeout.replace(b".", b"", 1).isdigit() else None
        ask.timeout_s = positive_number(number, "X-Breakeven-Timeout-Ms") / 1e3
    if headers.get(PRIORITY_HEADER) == b"high":
        ask.urgent = True


def add_headers(reply: Reply, headers: Headers, model: Model) -> None:
    """Compress where the client accepts it, echo its request id, and prove what ran where it asks."""
    accepted = headers.get(b"accept-encoding")
    if accepted is not None:
        reply.body, encoding = compress(reply.body, accepted)
        if encoding is not None:
            reply.headers.append((b"content-encoding", encoding))
    request_id = headers.get(REQUEST_ID_HEADER)
    if request_id is not None:
        reply.headers.append((REQUEST_ID_HEADER, request_id))
    if PROOF_HEADER in headers:
        reply.headers += model.card.proof_headers()


def error_reply(error: ServeError) -> Reply:
    """Return the body that every protocol's clients understand, with the reason in one word."""
    headers = [] if error.retry_after_s is None else [(b"retry-after", str(error.retry_after_s).encode())]
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allowed.encode()))
    if isinstance(error, TooLarge):
        headers.append(CLOSE)  # what is still on its way is not worth reading
    return Reply(orjson.dumps({"error": str(error), "reason": error.reason}), headers=headers)


def timing(arrived_s: float, job: Job | None) -> bytes:
    """Return the Server-Timing header's value: milliseconds by part, and in all (W3C Server Timing)."""
    total_ms = (time.monotonic() - arrived_s) * 1e3
    if job is None:
        return b"total;dur=%.3f" % total_ms
    spent = job.spent
    return (
        b"queue;dur=%.3f, tokenize;dur=%.3f, batch;dur=%.3f, compute;dur=%.3f, serialise;dur=%.3f, total;dur=%.3f"
        % (
            spent.queue_s * 1e3,
            spent.tokenize_s * 1e3,
            spent.batch_s * 1e3,
            spent.compute_s * 1e3,
            spent.serialise_s * 1e3,
            total_ms,
        )
    )


def log_access(scope: Scope, status: int, arrived_s: float, job: Job | None) -> None:
    """Log one request: what was asked and how it went, never its texts or its keys."""
    request_id = dict(scope["headers"]).get(REQUEST_ID_HEADER, b"").decode("latin-1")
    figures = {
        "path": scope["path"],
        "status": status,
        "request_id": request_id or None,
        "seconds": round(time.monotonic() - arrived_s, 6),
        "texts": len(job.labels) if job else None,
    }
    access.info("request", extra={"figures": figures})
