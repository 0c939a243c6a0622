"""Cores are apart where there are two; the alarm never rings early and rings at once for a time that has passed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

import pytest

from loadtests.alarm import Alarm, monotonic_s
from loadtests.cores import Cores, pinned, share_out


@pytest.mark.parametrize(
    ("available", "profile", "expected"),
    [
        ({0}, "cpu", Cores(None, None)),
        ({0, 1}, "cpu", Cores((0,), (1,))),
        ({2, 3, 5, 7}, "cpu", Cores((2, 3, 5), (7,))),
        ({2, 3, 5, 7}, "edge", Cores((2,), (7,))),
    ],
)
def test_server_and_generator_get_cores_of_their_own(available: set[int], profile: str, expected: Cores) -> None:
    assert share_out(available, profile=profile) == expected


def test_a_process_inherits_the_pin_and_this_one_loses_it() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with pinned((core,)):
        done = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], capture_output=True, check=True
        )
    assert done.stdout.decode().strip() == str({core})
    assert os.sched_getaffinity(0) == before


def test_the_alarm_rings_when_it_is_due_and_not_before() -> None:
    alarm = Alarm()
    late = []
    for _ in range(20):
        due_s = monotonic_s() + 0.0037
        alarm.set(due_s)
        assert select.select([alarm.descriptor], [], [], 2.0)[0]
        late.append(monotonic_s() - due_s)
        alarm.clear()
    alarm.close()
    assert min(late) >= 0
    # Finer than the millisecond to which event loops round their timeouts up.
    assert min(late) < 0.0009


def test_a_time_that_has_passed_rings_at_once() -> None:
    alarm = Alarm()
    alarm.set(monotonic_s() - 1)
    begin_s = time.monotonic()
    assert select.select([alarm.descriptor], [], [], 2.0)[0]
    assert time.monotonic() - begin_s < 1
    alarm.close()
