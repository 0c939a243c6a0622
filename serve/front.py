"""In front of FastAPI: keys, timing and the word that the connection ends, for whatever is not inference."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from serve.errors import MethodNotAllowed, ServeError
from serve.exchange import Desk
from serve.replies import CLOSE, error_reply, timing
from serve.routes import route

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/v2/health/live", "/v2/health/ready"})
PAGE = "/"


class Front:
    """An ASGI application in front of another.

    Args:
        app: answers.
        desk: knows the keys, and whether the server is draining.
    """

    def __init__(self, app: Application, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = self._timed(send, time.monotonic())
        if scope["method"] == "HEAD":  # the answer of GET; uvicorn leaves its body out
            scope = {**scope, "method": "GET"}
        try:
            self._check(scope)
        except ServeError as error:
            reply = error_reply(error)
            headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body))]
            await send({"type": "http.response.start", "status": error.status, "headers": headers + reply.headers})
            await send({"type": "http.response.body", "body": reply.body})
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        method, path = scope["method"], scope["path"]
        if route(path) is not None and not (method == "GET" and path == PAGE):
            msg = f"{method} {path}: inference is asked for by POST"
            raise MethodNotAllowed(msg, allowed="GET, POST" if path == PAGE else "POST")
        if path not in OPEN_PATHS:
            self._desk.keys.check(dict(scope["headers"]))

    def _timed(self, send: Send, arrived_s: float) -> Send:
        async def timed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                server_timing = (b"server-timing", timing(time.monotonic() - arrived_s))
                message["headers"] = [*message["headers"], server_timing]
                if self._desk.draining:
                    message["headers"].append(CLOSE)
            await send(message)

        return timed
