"""Folders that are either whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path`` that takes its place when the block ends without an error.

    Its files are synced to disk first. What stood at ``path`` before stays until then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        sync_tree(temporary)
        replace_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(new: Path, path: Path) -> None:
    """Rename ``new`` to ``path``; a folder that stood there is moved aside first and removed afterwards."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.rename(aside)
    new.rename(path)
    sync_path(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def clear_leftovers(parent: Path) -> None:
    """Remove what processes that were killed left beside the whole folders and files of ``parent``.

    A folder that had just been moved aside for one that never took its place goes back.
    """
    for path in parent.glob(".*.*.*"):
        name, pid, kind = path.name[1:].rsplit(".", 2)
        if kind not in {"tmp", "old"} or not pid.isdecimal() or psutil.pid_exists(int(pid)):
            continue
        if kind == "old" and not (parent / name).exists():
            path.rename(parent / name)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync_tree(folder: Path) -> None:
    """Flush every file below ``folder``, and the folders' own entries, to disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            sync_path(Path(parent, name))
        sync_path(Path(parent))


def sync_path(path: Path) -> None:
    """Flush one file or folder entry to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
