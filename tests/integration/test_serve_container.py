"""What a container demands, shown without one: an unprivileged user, read-only files, no home, a clean stop."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.served import ROOT, Running, write_bundle

pytestmark = pytest.mark.integration

NOBODY = 65534
# The interpreter may lie where only root can read, so it is left behind once everything is imported.
AS_NOBODY = f"""
import os, sys
import serve.worker, serve.supervisor, serve.__main__
import concurrent.futures.thread, encodings.idna, multiprocessing.connection, multiprocessing.resource_tracker
import uvicorn.lifespan.off, uvicorn.loops.uvloop, uvloop
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
serve.__main__.main()
"""


def test_the_image_runs_as_a_user_without_rights() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), users
    assert lines.index(f"USER {users[-1]}") > max(i for i, line in enumerate(lines) if line.startswith("FROM "))
    assert any(line.startswith("HEALTHCHECK ") for line in lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_unprivileged_user_with_nothing_to_write_serves_and_stops(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "words")
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for folder in [tmp_path, *tmp_path.parents][:-1]:  # a test's folders are its user's alone
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", AS_NOBODY, str(bundle), "--port", str(port), "--threads", "1"],
        cwd=bundle,
        env={"HOME": "/nonexistent", "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Running(process, f"http://127.0.0.1:{port}")
    try:
        give_up_s = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < give_up_s:
            try:
                if httpx.get(f"{server.url}/v2/health/ready").status_code == 200:
                    break
            except httpx.HTTPError:  # not yet, or it has ended: then its own words say why
                time.sleep(0.05)
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        assert re.search(rf"^Uid:\s+{NOBODY}\s+{NOBODY}\s", status, re.MULTILINE)
        assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
        assert server.terminate() == 0
    finally:
        process.kill()
        process.communicate()
        for path in [tmp_path, *tmp_path.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(bundle)
