"""glibc's allocator, told what this process does with its memory; with another C library nothing happens.

The numbers of the parameters are those of glibc's malloc.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
NEVER = 2**31 - 1
# glibc's defaults.
USUAL_TRIM_THRESHOLD, USUAL_MMAP_MAX, ANY_NUMBER = 128 * 1024, 65536, 0


@contextmanager
def freed_kept() -> Iterator[None]:
    """Keep what is freed for the next allocation, until the block ends.

    A training step frees its gradients and activations and asks for the same again. Left alone, glibc gives large
    blocks and the heap's end back to the kernel each time, and every page of them is mapped, cleared and faulted in
    again in the next step.
    """
    for parameter, value in ((ARENA_MAX, 1), (MMAP_MAX, 0), (TRIM_THRESHOLD, NEVER)):
        _call("mallopt", parameter, value)
    try:
        yield
    finally:
        usual = ((ARENA_MAX, ANY_NUMBER), (MMAP_MAX, USUAL_MMAP_MAX), (TRIM_THRESHOLD, USUAL_TRIM_THRESHOLD))
        for parameter, value in usual:
            _call("mallopt", parameter, value)
        trim()


def one_arena() -> None:
    """Let all threads share the main heap: one heap a thread keeps what each of them needed once."""
    _call("mallopt", ARENA_MAX, 1)


def trim() -> None:
    """Give the free pages back to the kernel."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
