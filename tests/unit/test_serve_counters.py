"""The workers' metrics folder: one a living supervisor, none of a dead one, and nobody else's is touched."""

from __future__ import annotations

import errno
import fcntl
import tempfile
from pathlib import Path

import pytest

from serve.counters import PREFIX, forget_levels, metrics_folder
from testbed.errors import UserError


def test_only_forsaken_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    forsaken, others = tmp_path / f"{PREFIX}old", tmp_path / "someone-elses"
    for folder in (forsaken, others):
        folder.mkdir()
        (folder / "counter_1.db").write_bytes(b"x")
    (tmp_path / f"{PREFIX}link").symlink_to(others)
    with metrics_folder() as first:
        assert not forsaken.exists()
        with metrics_folder() as second:
            assert first.is_dir()
            assert second.is_dir()
        assert first.is_dir()
        assert not second.exists()
    assert not first.exists()
    assert (others / "counter_1.db").exists()


def test_a_folder_that_cannot_be_locked_is_told_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(UserError, match="TMPDIR"), metrics_folder():
        pass
    assert not list(tmp_path.iterdir())


def test_of_a_dead_worker_only_what_it_counted_stays(tmp_path: Path) -> None:
    for name in ("counter_7.db", "gauge_livesum_7.db", "gauge_livemax_7.db", "gauge_livesum_77.db"):
        (tmp_path / name).write_bytes(b"x")
    forget_levels(tmp_path, 7)
    assert {file.name for file in tmp_path.iterdir()} == {"counter_7.db", "gauge_livesum_77.db"}
