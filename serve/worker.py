"""One worker process: loads the model, serves the port, ends when told, when stuck, or when its supervisor is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from typing import TYPE_CHECKING

import uvicorn

from serve import instruments
from serve.app import create_app
from serve.config import PROFILES, ServeSettings
from serve.connection import Connection
from serve.draining import Server
from serve.exchange import Desk
from serve.fleet import Fleet
from serve.front import Front
from serve.lifecycle import Board, Lifecycle
from serve.repository import Repository
from serve.security import KeyRing
from serve.turns import step_back
from testbed import allocator
from testbed.errors import UserError

if TYPE_CHECKING:
    from serve.traces import Traces

logger = logging.getLogger(__name__)

WATCH_S = 0.5
# Exit statuses; a supervisor starts a worker again after any but these two.
DONE, REFUSED = 0, 1
STUCK = 70
TRACE_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def work(settings: ServeSettings, *, listener: socket.socket, keys: KeyRing, board: Board, worker: int) -> int:
    """Serve until told to stop; returns the exit status."""
    allocator.one_arena()
    cap_memory(settings)
    repository, lifecycle = Repository(settings), Lifecycle(board, worker)
    fleet = Fleet(repository, lifecycle)
    desk = Desk(
        repository=repository, limits=settings.limits, keys=keys, log_access=settings.access_log, traces=open_traces()
    )
    front = Front(create_app(repository, lifecycle, fleet), desk)
    server = Server(
        uvicorn_config(front, desk, settings), settings=settings, desk=desk, repository=repository, lifecycle=lifecycle
    )
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_serve(server, fleet, settings, listener))
    if desk.traces is not None:
        desk.traces.close()
    if server.failure is not None:
        raise server.failure
    return DONE


def uvicorn_config(front: Front, desk: Desk, settings: ServeSettings) -> uvicorn.Config:
    """Return uvicorn's configuration; raises UserError where the TLS files do not fit."""
    config = uvicorn.Config(
        front,
        http=type("TimedConnection", (Connection,), {"receive_s": settings.limits.receive_s, "desk": desk}),
        ws="none",
        lifespan="off",
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=1,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        msg = (
            f"{settings.tls_certificate}: TLS cannot be set up ({error}); help: PEM files of a certificate and its key"
        )
        raise UserError(msg) from error
    return config


def open_traces() -> Traces | None:
    """Return where spans go: to OpenTelemetry's endpoint, where its variable names one and the extra is installed."""
    if not any(os.environ.get(variable) for variable in TRACE_ENDPOINTS):
        return None
    try:
        from serve.traces import Traces
    except ImportError as error:
        logger.warning(
            "%s is set, but there are no traces (%s); help: install the extra otel", TRACE_ENDPOINTS[0], error
        )
        return None
    return Traces()


def cap_memory(settings: ServeSettings) -> None:
    """Bound the process's private memory, where the profile or the user says so: an allocation beyond it fails."""
    most = settings.memory_bytes or PROFILES[settings.profile].memory_bytes
    if most is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


async def _serve(server: Server, fleet: Fleet, settings: ServeSettings, listener: socket.socket) -> None:
    step_back()
    watching = asyncio.create_task(_watch(server, fleet, settings))
    await server.serve(sockets=[listener])
    watching.cancel()


async def _watch(server: Server, fleet: Fleet, settings: ServeSettings) -> None:
    """Give signs of life; end the process when a lane is stuck or dead, or when the supervisor has gone."""
    supervisor = os.getppid()
    while True:
        fleet.lifecycle.sign_of_life()
        instruments.note_memory()  # of several workers another one may be asked for the metrics
        for model in fleet.repository.loaded():
            model.note_levels()
            if model.stuck_s() > settings.stuck_s or model.is_dead():
                logger.critical("the lane of %s is stuck or dead: the worker ends", model.card.name)
                os._exit(STUCK)
        if os.getppid() != supervisor:
            server.end()
        fleet.follow_soon()
        await asyncio.sleep(WATCH_S)
