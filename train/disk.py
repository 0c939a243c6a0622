"""A disk that is full or may not be written: one message, whichever library met it first."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from testbed.errors import UserError

FULL = {errno.ENOSPC, errno.EDQUOT}
REFUSING = {errno.EACCES, errno.EPERM, errno.EROFS}
# NumPy reports a short write, and safetensors any failed one, without an error number.
FULL_WORDS = ("requested and", "No space left", "Disk quota exceeded")


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn what a disk refuses inside the block into a UserError.

    Args:
        folder: of the checkpoint, which names the disk.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        if is_full(error):
            msg = f"{folder}: no space left on the disk; help: free space and run again, from the last checkpoint on"
        elif number in REFUSING:
            msg = f"{folder}: cannot be written ({error}); help: make it writable, or name another folder"
        else:
            raise
        raise UserError(msg) from error


def is_full(error: Exception) -> bool:
    """Whether a write failed for want of space."""
    words = getattr(error, "errno", None) is None and any(part in str(error) for part in FULL_WORDS)
    return words or getattr(error, "errno", None) in FULL


def reserve(path: Path) -> None:
    """Have the disk hold all of a file's bytes: writing a mapped file into a hole of a full disk kills the process.

    Raises:
        OSError: there is no room for them.
    """
    with path.open("r+b") as stream:
        os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
