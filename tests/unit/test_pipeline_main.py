"""The entry point: the version, and a disk that refuses."""

import errno
import importlib.metadata
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import command
from testbed.folders import whole_folder


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["breakeven", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return int(ended.value.code or 0)


def test_the_version_is_the_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"breakeven {importlib.metadata.version('breakeven')}\n"


def test_a_file_where_the_runs_folder_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\ndataset: {source: rows.csv}\n")
    (tmp_path / "runs").write_text("in the way\n")
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, "run", "mine.yaml") == 1
    assert "error: runs/mine: Not a directory; help: " in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_disk_that_refuses_is_one_message(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, "refused", "runs/mine/record.json")

    monkeypatch.setattr(command, "load_experiment", refused)
    assert main(monkeypatch, "run", "mine.yaml") == 1
    assert (
        capsys.readouterr().err
        == "error: runs/mine/record.json: refused; help: make it writable, or name another folder\n"
    )


def test_sigterm_puts_away_what_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*_: object) -> None:
        with whole_folder(tmp_path / "half"):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    monkeypatch.setattr(command, "load_experiment", work)
    assert main(monkeypatch, "run", "mine.yaml") == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_any_other_failure_of_the_system_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EBADF, "our own bug")

    monkeypatch.setattr(command, "load_experiment", broken)
    monkeypatch.setattr(sys, "argv", ["breakeven", "run", "mine.yaml"])
    with pytest.raises(OSError, match="our own bug"):
        command.main()
