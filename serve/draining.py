"""Ends a server without losing a connection that the kernel has already accepted for it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from types import FrameType

import uvicorn

from serve.config import ServeSettings
from serve.connection import Connection
from serve.exchange import Desk
from serve.lifecycle import Lifecycle, Phase
from serve.repository import Repository
from testbed.errors import UserError

logger = logging.getLogger(__name__)

SO_ATTACH_FILTER = 26
# A classic BPF program of one instruction, "return 0": the kernel drops what it is shown.
DROP_EVERYTHING = struct.pack("HBBI", 0x06, 0, 0, 0)
# An open connection without a request in hand is closed after so many quiet seconds of draining.
QUIET_S = 1.0
TICK_S = 0.02
# uvicorn wakes up ten times a second to see whether it shall end; once is enough for the Date header.
DATE_S = 1.0


class Server(uvicorn.Server):
    """uvicorn's server with a beginning that answers health checks while the model loads, and a lossless end.

    Args:
        config: uvicorn's.
        settings: ours.
        desk: told when draining begins.
        repository: loaded at start.
        lifecycle: what the health checks see.

    Attributes:
        failure: why the model could not be served, or None.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        settings: ServeSettings,
        desk: Desk,
        repository: Repository,
        lifecycle: Lifecycle,
    ) -> None:
        super().__init__(config)
        self.failure: Exception | None = None
        self._settings = settings
        self._desk = desk
        self._repository = repository
        self._lifecycle = lifecycle
        self._loading: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Ask for the end; call it on the event loop."""
        self.should_exit = True
        self._ended.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ask for the end from a signal handler."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        """Sleep until the end, but for the Date header."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATE_S):
                    await self._ended.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals ask for the end; uvicorn would raise them again afterwards: no clean exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and load; one worker of several listens only once it can answer."""
        self._loading = asyncio.create_task(self._load())
        if self._settings.num_workers > 1:
            await self._loading
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Readiness off, take in what the kernel holds, answer it all, close; bounded by ``drain_s``."""
        begin_s = time.monotonic()
        if self._lifecycle.phase is not Phase.FAILED:
            self._lifecycle.enter(Phase.DRAINING)
        self._desk.draining = True
        await asyncio.sleep(self._settings.shutdown_delay_s)
        for listener in sockets or []:
            await stop_connecting(listener)
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        while self.server_state.connections and time.monotonic() < begin_s + self._settings.drain_s:
            self._close_quiet()
            await asyncio.sleep(TICK_S)
        left = len(self.server_state.connections)
        await super().shutdown(sockets=None)
        await self._repository.close()
        logger.info("drained", extra={"figures": {"seconds": round(time.monotonic() - begin_s, 3), "cut_off": left}})

    def _close_quiet(self) -> None:
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            quiet_s = connection.quiet_s()
            if quiet_s is not None and quiet_s > QUIET_S:
                connection.shutdown()

    async def _load(self) -> None:
        try:
            await self._repository.load()
        except UserError as error:
            self._refuse(error)
        except Exception as error:
            # Whatever it is, a worker without a model must end, and say why, instead of starting for ever.
            logger.exception("loading failed")
            self._refuse(error)
        else:
            if self._lifecycle.phase is Phase.STARTING:
                self._lifecycle.enter(Phase.READY)

    def _refuse(self, why: Exception) -> None:
        self.failure = why
        self._lifecycle.enter(Phase.FAILED)
        self.end()


async def stop_connecting(listener: socket.socket) -> None:
    """Let no new connection be made, and return when those that were made have been accepted.

    Closing a listening socket resets the connections that wait in its queue. So the kernel is first told to drop every
    packet addressed to the listener itself (packets of connections that exist are not touched); a client that knocks
    now finds the port closed a moment later, and can go elsewhere. The running event loop empties the queue.
    """
    program = ctypes.create_string_buffer(DROP_EVERYTHING, len(DROP_EVERYTHING))
    filter_head = struct.pack("HL", 1, ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_head)
    except OSError as error:
        logger.warning("new connections could not be held off (%s): some may be reset while draining", error)
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    # The queue is the kernel's: there is no event of ours to wait for.
    while waiting.poll(0):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.sleep(TICK_S)
