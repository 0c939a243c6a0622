"""Two runs in one folder: the second one is told so, and touches nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lock import locked
from testbed.errors import UserError

HOLDER = """
import sys
from pathlib import Path
from pipeline.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"process {holder.pid}.* works in this folder; help: wait"),
            locked(tmp_path),
        ):
            pass
        holder.kill()
    with locked(tmp_path):  # a killed process leaves no lock behind
        pass


def test_a_folder_that_was_left_in_order_opens_again(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "run"):
            assert (tmp_path / "run").is_dir()
