"""A disk that is really full: a tmpfs of 2 MB, mounted in a namespace of the test's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tiny import write_checkpoint

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def may_mount() -> bool:
    """Whether this machine lets an ordinary process mount inside a user namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.skipif(not may_mount(), reason="this machine allows no user namespace with mounts (unshare -Urm)")
def test_a_disk_that_fills_up_is_said_and_keeps_what_is_whole(tmp_path: Path, tiny_dataset: Path) -> None:
    disk, steps = tmp_path / "disk", tmp_path / "steps.parquet"
    disk.mkdir()
    pq.write_table(pa.table({"step": [0]}), steps)
    script = f'mount -t tmpfs -o size=2m none "{disk}" && exec "{sys.executable}" tests/full_disk.py "$@"'
    wide = write_checkpoint(tmp_path / "wide", hidden_size=256, max_length=32)
    result = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", *map(str, (disk, steps, tiny_dataset, wide))],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    said, whole, left_over, of_student, of_teacher, at_last = result.stdout.splitlines()
    found = re.search(r"no space left on the disk \(checkpoint-0*(\d+) is whole\); help: free space", said)
    assert found, said
    assert int(found[1]) > 1
    assert whole == f"whole: step {found[1]}, True"
    assert left_over == "left over: []"
    # Hidden states go to a mapped file: without room reserved for them the process would be killed by SIGBUS.
    for name, told in (("student", of_student), ("teacher", of_teacher)):
        assert told.startswith(f"{disk / name}: no space left on the disk; help: free space and run again")
    assert at_last == "whole: []"
