"""The lane's long time slices: asked for with the thread's own niceness, and not missed where they are refused."""

import errno
import os
import platform
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from serve.turns import SCHED_SETATTR, SLICE_S, take_long_slices
from tests.scheduling import slice_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in SCHED_SETATTR, reason="time slices are asked of Linux alone"
)


T = TypeVar("T")


def in_a_thread(work: Callable[[], T]) -> T:
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(10)
    return found[0]


def test_the_thread_gets_them_and_keeps_its_niceness() -> None:
    def work() -> tuple[bool, float, int]:
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, 5)
        return take_long_slices(), slice_of(own), os.getpriority(os.PRIO_PROCESS, own)

    taken, seconds, nice = in_a_thread(work)
    assert (taken, nice) == (True, 5)
    assert seconds in {SLICE_S, 0.0}, "0 where the kernel is older than the wish"


def test_a_thread_of_another_policy_is_left_alone() -> None:
    def work() -> tuple[bool, int]:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return take_long_slices(), os.sched_getscheduler(0)

    assert in_a_thread(work) == (False, os.SCHED_BATCH)


def test_where_it_may_not_even_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "sched_getscheduler", refuse)
    assert take_long_slices() is False
