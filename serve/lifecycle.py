"""Where a worker is between start and end, as the health checks and the supervisor see it."""

from __future__ import annotations

import json
import mmap
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

# A worker's phase, its last sign of life, and the newest wish that it has carried out.
SLOT = struct.Struct("<BdI")
# The wish's number and the length of its JSON, which follows.
WISH = struct.Struct("<II")
WISH_BYTES = 16 * 2**10


class Phase(IntEnum):
    """What a worker is doing; only READY gets traffic."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    FAILED = 3


@dataclass
class Board:
    """Memory that the supervisor and its workers share: a slot for each worker, and which models all are to serve.

    Args:
        num_workers: how many slots.
    """

    num_workers: int

    def __post_init__(self) -> None:
        self._memory = mmap.mmap(-1, WISH_BYTES + SLOT.size * self.num_workers)

    def write(self, worker: int, phase: Phase) -> None:
        """Note a worker's phase, and that it is alive now."""
        SLOT.pack_into(self._memory, self._place(worker), phase, time.monotonic(), self.done(worker))

    def phase(self, worker: int) -> Phase:
        """Return a worker's phase."""
        return Phase(self._slot(worker)[0])

    def silent_s(self, worker: int) -> float:
        """Return the seconds since a worker's last sign of life."""
        return time.monotonic() - self._slot(worker)[1]

    def done(self, worker: int) -> int:
        """Return the number of the newest wish that a worker has carried out."""
        return self._slot(worker)[2]

    def note_done(self, worker: int, number: int) -> None:
        """Note that a worker has carried out a wish."""
        SLOT.pack_into(self._memory, self._place(worker), self.phase(worker), time.monotonic(), number)

    def wish(self) -> tuple[int, dict[str, int]]:
        """Return the newest wish: its number, and the models that all workers are to serve, each with a generation.

        A generation that grew asks to load the model again. Number 0 wishes nothing beyond the bundle of the start.
        """
        number, length = WISH.unpack_from(self._memory, 0)
        if not number:
            return 0, {}
        return number, json.loads(self._memory[WISH.size : WISH.size + length])

    def make_wish(self, models: dict[str, int]) -> int:
        """Publish a wish and return its number; the caller holds the lock of the fleet."""
        number = self.wish()[0] + 1
        encoded = json.dumps(models).encode()
        assert WISH.size + len(encoded) <= WISH_BYTES
        self._memory[WISH.size : WISH.size + len(encoded)] = encoded
        WISH.pack_into(self._memory, 0, number, len(encoded))
        return number

    def _place(self, worker: int) -> int:
        return WISH_BYTES + worker * SLOT.size

    def _slot(self, worker: int) -> tuple[int, float, int]:
        phase, alive_s, done = SLOT.unpack_from(self._memory, self._place(worker))
        return phase, alive_s, done

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
