"""The folder that a command leaves: whole, or not there with one clear message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import UserError
from testbed.folders import whole_folder


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes ``path``'s place when the block ends without an error.

    Raises:
        UserError: the disk is full, or the folder may not be written to.
    """
    try:
        with whole_folder(path) as temporary:
            yield temporary
    except OSError as error:
        msg = f"{path}: cannot be written ({error}); help: free some space, or name a folder that you may write to"
        raise UserError(msg) from error
