"""The folder in which several workers keep their metrics' values: made for a supervisor, gone with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import UserError

PREFIX = "breakeven-metrics-"
ATTEMPTS = 5


@contextlib.contextmanager
def metrics_folder() -> Iterator[Path]:
    """Make the folder, and remove those that supervisors left behind which were killed.

    A folder is in use as long as anybody holds its lock: its supervisor, or one of the workers, which inherit the lock.

    Raises:
        UserError: it cannot be locked.
    """
    _remove_forsaken()
    folder, lock = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def forget_levels(folder: Path, pid: int) -> None:
    """Forget the gauges of a worker that has ended, which hold for the living alone; what it counted stays."""
    for file in folder.glob(f"gauge_live*_{pid}.db"):
        file.unlink(missing_ok=True)


def _make() -> tuple[Path, int]:
    for _ in range(ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Between these two lines another start may take it for forsaken, and remove it.
        if (lock := _lock(folder)) is not None:
            if folder.exists():
                return folder, lock
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
    msg = f"{tempfile.gettempdir()}: no folder there can be locked; help: set TMPDIR to one on a local file system"
    raise UserError(msg)


def _remove_forsaken() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if (lock := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Return the descriptor that holds the folder's lock; None where another has it, or it is no folder of ours."""
    with contextlib.suppress(OSError):
        found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(found).st_uid == os.geteuid():
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return found
        except OSError:  # another has it, or the file system knows no locks
            pass
        os.close(found)
    return None
