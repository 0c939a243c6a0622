"""A server under test: started as a process, pinned, awaited, stopped by its pid."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from loadtests.cores import pinned
from loadtests.scrape import is_ready
from testbed.errors import UserError
from testbed.meter import process_tree
from testbed.records import Usage

POLL_S = 0.05
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Target:
    """A server as a run sees it.

    Attributes:
        url: scheme, host and port.
        variant, profile: what it serves; ``external`` for a server that is not ours.
        model: its name in the protocol's path.
        protocol: ``oip``, ``hf`` or ``template``.
        template: the request's form, for ``template``.
        pid: root of its process tree, None where we did not start it.
        cores: cores it is pinned to, or None.
        device: index of the GPU it uses, or None.
        file_sha256: hashes that its proof may name; empty where nothing is known.
        idle: its usage without load, once that was metered.
    """

    url: str
    variant: str
    profile: str
    model: str
    protocol: Literal["oip", "hf", "template"] = "oip"
    template: Path | None = None
    pid: int | None = None
    cores: tuple[int, ...] | None = None
    device: int | None = None
    file_sha256: frozenset[str] = frozenset()
    idle: Usage | None = None


class ServerProcess:
    """A server in a process of its own; use it as a context manager.

    Args:
        command: what starts it.
        url: where it will answer.
        cores: cores it is pinned to, or None.
        log: file that gets what it says.
        ready_path: answered with 200 once it can infer.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        url: str,
        cores: tuple[int, ...] | None,
        log: Path,
        ready_path: str = "/v2/health/ready",
    ) -> None:
        self.command = list(command)
        self.url = url
        self._ready_url = url + ready_path
        self.cores = cores
        self._log = log

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with pinned(self.cores), self._log.open("wb") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            self._await_readiness()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def pid(self) -> int:
        """Process id, the root of the server's tree."""
        return self._process.pid

    def _await_readiness(self) -> None:
        """Return at the first 200 of the readiness check; raises UserError where the server ends or is silent."""
        give_up_s = time.monotonic() + START_TIMEOUT_S
        while not is_ready(self._ready_url):
            try:
                status = self._process.wait(POLL_S)  # a server that ends is noticed at once
            except subprocess.TimeoutExpired:
                if time.monotonic() < give_up_s:
                    continue
                self._refuse(f"was not ready after {START_TIMEOUT_S:g} s")
            else:
                self._refuse(f"ended with status {status} before it was ready")

    def _refuse(self, what: str) -> None:
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-8:]
        said = "\n".join(words)
        raise UserError(f"the server {what}: {' '.join(self.command)}; help: see {self._log}\n{said}")

    def _stop(self) -> None:
        """End the process; what it leaves behind of its own tree is ended too."""
        children = process_tree(self._process.pid)[1:]
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for child in psutil.wait_procs(children, timeout=0)[1]:
            child.terminate()
        for child in psutil.wait_procs(children, timeout=STOP_TIMEOUT_S)[1]:
            child.kill()


def free_port() -> int:
    """Return a port of this host that is free now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports of this host that are free now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def our_command(bundle: Path, *, variant: str, profile: str, port: int, extra: Sequence[str] = ()) -> list[str]:
    """Return the command that serves one variant of a bundle."""
    named = ["--variant", variant, "--profile", profile, "--port", str(port)]
    return [sys.executable, "-m", "serve", str(bundle), *named, *extra]
