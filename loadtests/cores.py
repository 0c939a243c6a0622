"""Which cores the server and the generator get: apart where the machine allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """Core numbers of each side; None where they are not pinned."""

    server: tuple[int, ...] | None
    generator: tuple[int, ...] | None


def share_out(available: set[int], *, profile: str) -> Cores:
    """Return the last core for the generator and the others for the server (one alone for the edge profile).

    On a machine with one core nothing is pinned: the two then share it, which the send lag will tell.
    """
    cores = sorted(available)
    if len(cores) == 1:
        return Cores(server=None, generator=None)
    server = cores[:1] if profile == "edge" else cores[:-1]
    return Cores(server=tuple(server), generator=(cores[-1],))


@contextmanager
def pinned(cores: tuple[int, ...] | None) -> Iterator[None]:
    """Pin this thread while the body runs: a process started in it inherits the pin from its first moment on."""
    before = os.sched_getaffinity(0)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
