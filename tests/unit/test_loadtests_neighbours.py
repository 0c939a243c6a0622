"""What else ran on our cores: a busy neighbour is seen, our own work is not counted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loadtests import neighbours
from loadtests.neighbours import CoreTimes, other_share, read_cores


def test_work_that_is_not_ours_is_counted_and_ours_is_not() -> None:
    before, after = CoreTimes(work_s=10, steal_s=1), CoreTimes(work_s=14, steal_s=1.5)
    assert other_share(before, after, own_s=2.5, wall_s=4) == 0.5
    assert other_share(before, after, own_s=9, wall_s=4) == 0.0
    assert other_share(None, after, own_s=1, wall_s=4) is None


def test_the_kernels_columns_are_read_for_the_cores_that_were_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 9 9 9 9 9 9 9 9 9 9\ncpu0 100 10 40 999 7 7 7 50 0 0\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 5\n")
    monkeypatch.setattr(neighbours, "STAT", stat)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert read_cores({0}) == CoreTimes(work_s=pytest.approx(150 * tick_s), steal_s=pytest.approx(50 * tick_s))
    monkeypatch.setattr(neighbours, "STAT", tmp_path / "none")
    assert read_cores({0}) is None


def test_a_busy_process_shows_on_this_machine() -> None:
    cores = os.sched_getaffinity(0)
    before, begin_s = read_cores(cores), time.monotonic()
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.5: pass"], check=True)
    found = other_share(before, read_cores(cores), own_s=0.0, wall_s=time.monotonic() - begin_s)
    assert found is not None
    assert found * (time.monotonic() - begin_s) > 0.4
