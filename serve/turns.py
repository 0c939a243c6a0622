"""Who runs when on a busy core: the event loop waits for the batch, and the batch lets it through at its end.

Left to itself the kernel interrupts a batch whenever a request comes in, and again after each time slice. Every time
both sides find their caches gone, and what an answer costs the event loop nearly doubles.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import platform
import struct
import sys
from concurrent.futures import ThreadPoolExecutor

from testbed import machine

logger = logging.getLogger(__name__)

# A batch is over sooner; and a health check need not wait longer.
SLICE_S = 0.02
# The C library has no function for it. Fields: size, policy, flags, nice, priority, runtime, deadline, period, clamps.
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
SCHED_ATTR = "=IIQiIQQQII"


def share_a_core() -> bool:
    """Return whether the event loop and the lane have but one core between them."""
    return machine.usable_cores() < 2  # noqa: PLR2004 - one each


def step_back() -> None:
    """Let the event loop wait for its turn on a busy core: it would else interrupt a batch for every single request.

    It then runs when the batch is over or has used up its time slice, and does in one go what has come meanwhile;
    where a core is idle it runs at once. Threads inherit the policy: those of the executor, which load the models and
    start their lanes, get the usual one back. A process that was started with another policy keeps it everywhere.
    """
    usual = os.sched_param(0)
    try:
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            return
        os.sched_setscheduler(0, os.SCHED_BATCH, usual)
    except OSError as error:
        logger.warning("the event loop keeps its scheduling policy (%s): requests interrupt batches", error)
        return
    executor = ThreadPoolExecutor(initializer=os.sched_setscheduler, initargs=(0, os.SCHED_OTHER, usual))
    asyncio.get_running_loop().set_default_executor(executor)


def take_long_slices() -> bool:
    """Ask for time slices of ``SLICE_S`` for the calling thread, and return whether the kernel took the wish.

    Linux heeds it from 6.12 on (EEVDF's ``sched_runtime``) and ignores it before. The thread gets no more time in all.
    """
    number = SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    try:
        if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, 0)
    except OSError:
        return False
    size, slice_ns = struct.calcsize(SCHED_ATTR), round(SLICE_S * 1e9)
    wish = struct.pack(SCHED_ATTR, size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0, 0, 0)
    status: int = ctypes.CDLL(None).syscall(number, 0, wish, 0)
    return status == 0
