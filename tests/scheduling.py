"""What the kernel says of a thread's scheduling, for which Python has no function."""

from __future__ import annotations

import ctypes
import platform
import struct

from serve.turns import SCHED_ATTR, SCHED_SETATTR


def slice_of(thread: int) -> float:
    """Return the seconds of a thread's time slice; 0 where the kernel does not tell them (before 6.12)."""
    attributes = ctypes.create_string_buffer(struct.calcsize(SCHED_ATTR))
    getattr_number = SCHED_SETATTR[platform.machine()] + 1
    assert ctypes.CDLL(None).syscall(getattr_number, thread, attributes, len(attributes), 0) == 0
    return struct.unpack(SCHED_ATTR, attributes.raw)[5] / 1e9
