"""A folder is whole or not there, and what a kill leaves beside it is put right by the next run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.folders import clear_leftovers, whole_folder


def ended_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "old").touch()

    def fail() -> None:
        with whole_folder(tmp_path / "bundle") as temporary:
            (temporary / "new").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path("bundle"), Path("bundle/old")]


def test_what_a_killed_process_left_is_removed_and_what_it_moved_aside_goes_back(tmp_path: Path) -> None:
    pid = ended_pid()
    for name in (f".loads.{pid}.tmp", f".teacher.{pid}.old", f".bundle.{pid}.old", "bundle", ".teacher.training"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / f".record.json.{pid}.tmp").touch()
    clear_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"teacher", "bundle", ".teacher.training"}
    assert (tmp_path / "teacher" / "file").read_text() == f".teacher.{pid}.old"
    assert (tmp_path / "bundle" / "file").read_text() == "bundle"


def test_what_a_living_process_is_writing_stays(tmp_path: Path) -> None:
    (tmp_path / f".report.{os.getpid()}.tmp").mkdir()
    clear_leftovers(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
