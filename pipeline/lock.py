"""One process at a time works in a run's folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import UserError

LOCK = ".lock"


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run's folder for the length of the block; the kernel lets go of it when the process ends, however it ends.

    Raises:
        UserError: another process holds it; names its pid.
    """
    run.mkdir(parents=True, exist_ok=True)
    with (run / LOCK).open("a+", encoding="ascii") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            msg = (
                f"{run}: another breakeven (process {stream.read().strip() or 'unknown'}) works in this folder; "
                "help: wait until it ends, or give this one its own folder with --runs"
            )
            raise UserError(msg) from None
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield
