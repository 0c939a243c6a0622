"""Waking at a time to the microsecond: event loops round their timeouts up to a millisecond, a timerfd does not."""

from __future__ import annotations

import ctypes
import os
import time

CLOCK_MONOTONIC = 1
ABSOLUTE_TIME = 1


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class Alarm:
    """A Linux timerfd: its descriptor becomes readable at the time it was set to.

    Raises:
        OSError: the kernel gives no timer.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, due_s: float) -> None:
        """Ring at ``due_s`` on the clock of ``time.monotonic``; a time that has passed rings at once."""
        nanoseconds = max(1, round(due_s * 1e9))
        seconds, rest = divmod(nanoseconds, 10**9)
        spec = _TimerSpec(_TimeSpec(0, 0), _TimeSpec(seconds, rest))
        if self._libc.timerfd_settime(self.descriptor, ABSOLUTE_TIME, ctypes.byref(spec), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> None:
        """Take note of a ring, so that the descriptor is no longer readable."""
        os.read(self.descriptor, 8)

    def close(self) -> None:
        """Give the timer back."""
        os.close(self.descriptor)


def monotonic_s() -> float:
    """Return the clock of every raw row: the same for all processes of one host."""
    return time.monotonic()
