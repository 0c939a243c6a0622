"""The allocator, in a process of its own: what it is told holds for the whole process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, json, resource, sys
import numpy as np
import psutil
from testbed.allocator import freed_kept

MEGABYTE = 1 << 20

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for size in (8, 40, 24) * 4:
        np.ones(size * MEGABYTE, dtype=np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with freed_kept() if sys.argv[1] == "kept" else contextlib.nullcontext():
    faults()
    again = faults()
print(json.dumps({"faults": again, "rss_bytes": psutil.Process().memory_info().rss}))
"""


def measured(how: str) -> dict[str, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_what_is_freed_is_used_again_and_given_back_in_the_end() -> None:
    kept, usual = measured("kept"), measured("usual")
    # 288 MB in pages of at most 2 MB each, which are faulted in once and not at every allocation.
    assert kept["faults"] < 20
    assert usual["faults"] >= 144
    assert kept["rss_bytes"] < usual["rss_bytes"] + 10_000_000
