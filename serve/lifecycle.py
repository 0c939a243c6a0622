"""Where a worker is between start and end, as the health checks and the supervisor see it."""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

SLOT = struct.Struct("<Bd")


class Phase(IntEnum):
    """What a worker is doing; only READY gets traffic."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    FAILED = 3


@dataclass
class Board:
    """One slot a worker in memory that the supervisor and its workers share: phase, and time of the last sign of life.

    Args:
        num_workers: how many slots.
    """

    num_workers: int

    def __post_init__(self) -> None:
        self._memory = mmap.mmap(-1, SLOT.size * self.num_workers)

    def write(self, worker: int, phase: Phase) -> None:
        """Note a worker's phase, and that it is alive now."""
        SLOT.pack_into(self._memory, worker * SLOT.size, phase, time.monotonic())

    def phase(self, worker: int) -> Phase:
        """Return a worker's phase."""
        return Phase(SLOT.unpack_from(self._memory, worker * SLOT.size)[0])

    def silent_s(self, worker: int) -> float:
        """Return the seconds since a worker's last sign of life."""
        return time.monotonic() - float(SLOT.unpack_from(self._memory, worker * SLOT.size)[1])

    def all_ready(self) -> bool:
        """Return whether every worker gets traffic."""
        return all(self.phase(worker) is Phase.READY for worker in range(self.num_workers))


class Lifecycle:
    """One worker's own phase, written through to the board.

    Args:
        board: shared with the supervisor.
        worker: this worker's slot.
    """

    def __init__(self, board: Board, worker: int) -> None:
        self.board = board
        self.worker = worker
        self._opened = False
        self._phase = Phase.STARTING
        self.enter(Phase.STARTING)

    @property
    def phase(self) -> Phase:
        """The worker's phase."""
        return self._phase

    def enter(self, phase: Phase) -> None:
        """Go on to a phase."""
        self._phase = phase
        self.board.write(self.worker, phase)

    def sign_of_life(self) -> None:
        """Tell the supervisor that the event loop turns."""
        self.board.write(self.worker, self._phase)

    def is_ready(self) -> bool:
        """Return whether this worker answers; at first only once every worker does, later each for itself."""
        if self._phase is not Phase.READY:
            return False
        self._opened = self._opened or self.board.all_ready()
        return self._opened
