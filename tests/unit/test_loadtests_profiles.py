"""What a profile makes of a load test: the server's command, its cores, and the device that is metered."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from loadtests import suite
from loadtests.config import LoadTestConfig
from loadtests.suite import Subject, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {"variants/v.onnx": "a" * 64}


@pytest.mark.parametrize(
    ("profile", "cores", "device"), [("cpu", (0, 1, 2), None), ("edge", (0,), None), ("gpu", (0, 1, 2), 0)]
)
def test_a_profile_sets_cores_command_and_metered_device(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str, cores: tuple[int, ...], device: int | None
) -> None:
    started: list[tuple[list[str], tuple[int, ...]]] = []

    @contextmanager
    def process(command: list[str], *, url: str, cores: tuple[int, ...], log: Path) -> Iterator[SimpleNamespace]:
        started.append((command, cores))
        yield SimpleNamespace(pid=1)

    monkeypatch.setattr(suite, "ServerProcess", process)
    monkeypatch.setattr(suite.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    bench = SimpleNamespace(config=LoadTestConfig(), logs=tmp_path, idle=lambda target: target)
    manifest = SimpleNamespace(name="m", variant=lambda _: SimpleNamespace(files=FILES))
    bundle = SimpleNamespace(folder=tmp_path, manifest=manifest)
    with serving(bench, bundle, Subject("v", profile)) as target:  # type: ignore[arg-type]
        assert (target.profile, target.cores, target.device) == (profile, cores, device)
        assert target.file_sha256 == {"a" * 64}
    command, pinned_to = started[0]
    assert command[command.index("--profile") + 1] == profile
    assert pinned_to == cores
