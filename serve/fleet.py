"""Lets all workers serve the same models: a change that one worker is asked for is carried out by each."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
from collections.abc import AsyncIterator, Coroutine

from serve.errors import ServeError
from serve.lifecycle import Lifecycle, Phase
from serve.model import Model
from serve.repository import Repository, load_again
from testbed.bundle import MANIFEST
from testbed.errors import UserError

logger = logging.getLogger(__name__)

TICK_S = 0.05
PATIENCE_S = 120.0


class Fleet:
    """One worker's part in the whole.

    Args:
        repository: this worker's models.
        lifecycle: its place on the board that all share.
    """

    def __init__(self, repository: Repository, lifecycle: Lifecycle) -> None:
        self.repository = repository
        self.lifecycle = lifecycle
        self._served: dict[str, int] = {}
        self._following: asyncio.Task[None] | None = None

    async def load(self, name: str) -> Model:
        """Load the newest version of a model here, then in every other worker; returns when all serve it.

        Raises:
            NotFound: no bundle of that name.
            InvalidRequest: the bundle is broken; nothing has changed.
        """
        async with self._alone():
            model = await load_again(self.repository, name)
            wanted = self._wanted()
            wanted[name] = wanted.get(name, 0) + 1
            await self._publish(wanted)
        return model

    async def unload(self, name: str) -> None:
        """Take a model out of service in every worker; raises NotFound."""
        async with self._alone():
            await self.repository.unload(name)
            wanted = self._wanted()
            wanted.pop(name, None)
            await self._publish(wanted)

    def follow_soon(self) -> None:
        """Begin to carry out a wish of another worker, if there is a new one."""
        board, worker = self.lifecycle.board, self.lifecycle.worker
        idle = self._following is None or self._following.done()
        if idle and self.lifecycle.phase is Phase.READY and board.wish()[0] > board.done(worker):
            self._following = asyncio.create_task(self.follow())

    async def follow(self) -> None:
        """Carry out the newest wish: load what is new, unload what is not wanted any more."""
        board, worker = self.lifecycle.board, self.lifecycle.worker
        number, wanted = board.wish()
        if number:
            for name, generation in wanted.items():
                if self._served.get(name, 0) != generation:
                    await self._try(self.repository.load(name))
            for name in {model.card.name for model in self.repository.loaded()} - set(wanted):
                await self._try(self.repository.unload(name))
            self._served = wanted
        board.note_done(worker, number)

    async def _publish(self, wanted: dict[str, int]) -> None:
        board = self.lifecycle.board
        number = board.make_wish(wanted)
        self._served = wanted
        board.note_done(self.lifecycle.worker, number)
        async with asyncio.timeout(PATIENCE_S):
            # The others are other processes: there is no event of ours to wait for.
            while any(  # noqa: ASYNC110
                board.phase(worker) is Phase.READY and board.done(worker) < number
                for worker in range(board.num_workers)
            ):
                await asyncio.sleep(TICK_S)

    def _wanted(self) -> dict[str, int]:
        number, wanted = self.lifecycle.board.wish()
        if number:
            return dict(wanted)
        return {model.card.name: self._served.get(model.card.name, 0) for model in self.repository.loaded()}

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the one lock of all workers: the manifest that all were started with."""
        with (self.repository.settings.bundle / MANIFEST).open("rb") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            yield

    @staticmethod
    async def _try(change: Coroutine[None, None, object]) -> None:
        """Carry out one part of a wish. Another worker could do it, so what goes wrong here does not stop the rest."""
        try:
            await change
        except (UserError, ServeError) as error:
            logger.critical("a change that another worker made failed here: %s", error)
