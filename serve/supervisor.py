"""Holds the port, forks the workers, replaces those that die, and passes the end on to them. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

from serve.config import ServeSettings
from serve.counters import forget_levels, metrics_folder
from serve.lifecycle import Board, Phase
from serve.logs import log_to_stderr
from serve.security import KeyRing, read_keys
from testbed.errors import UserError

logger = logging.getLogger(__name__)

BACKLOG = 2048
# Signals wake it at once; this is for workers that hang.
POLL_S = 1.0
# A worker whose event loop gives no sign of life for so long is killed and replaced.
SILENT_S = 30.0
# Workers that die one after the other are replaced ever more slowly.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
GRACE_S = 5.0
REFUSED = 1


class Supervisor:
    """Parent of the workers.

    Args:
        settings: for the workers, too.

    Raises:
        UserError: the port is taken, or the keys cannot be read.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._keys = read_keys(settings.api_keys_file)
        self._listener = listen(settings.host, settings.port)
        self._board = Board(settings.num_workers)
        self._workers: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._pauses = dict.fromkeys(range(settings.num_workers), FIRST_PAUSE_S)
        self._was_ready: set[int] = set()
        self._ending = False
        self._metrics: Path | None = None
        self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; returns the exit status."""
        host, port = self._listener.getsockname()[:2]
        warn_when_open(host, self._keys)
        logger.info("listening", extra={"figures": {"host": host, "port": port, "workers": self._settings.num_workers}})
        signal.set_wakeup_fd(self._waker)
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._end)
        signal.signal(signal.SIGCHLD, _wake_up)
        with contextlib.ExitStack() as stack:
            if self._settings.num_workers > 1:
                self._metrics = stack.enter_context(metrics_folder())
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(self._metrics)
            for worker in range(self._settings.num_workers):
                self._fork(worker)
            return self._supervise()

    def _supervise(self) -> int:
        status, deadline_s = 0, None
        while self._workers or (self._due and not self._ending):
            self._wait()
            for worker, code in self._reap():
                if self._ending:
                    # One that somebody else killed just before has nothing to say about this end.
                    status = max(status, int(code not in {0, -signal.SIGTERM, -signal.SIGKILL}))
                elif worker not in self._was_ready:
                    status = REFUSED
                    if code != REFUSED:  # then it could not say itself what was wrong
                        tell(f"the worker ended with status {code} before it was ready; help: {self._likely(code)}")
                    self._end(signal.SIGTERM, None)
                else:
                    self._plan_successor(worker, code)
            if self._ending and deadline_s is None:
                self._listener.close()
                deadline_s = time.monotonic() + self._settings.shutdown_delay_s + self._settings.drain_s + GRACE_S
            if deadline_s is not None and time.monotonic() > deadline_s:
                status = 1
                self._signal_all(signal.SIGKILL)
            if not self._ending:
                self._replace()
        return status

    def _wait(self) -> None:
        select.select([self._wake], [], [], POLL_S)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _reap(self) -> list[tuple[int, int]]:
        ended = []
        for pid, worker in list(self._workers.items()):
            found, state = os.waitpid(pid, os.WNOHANG)
            if found:
                del self._workers[pid]
                if self._metrics is not None:
                    forget_levels(self._metrics, pid)
                # What it last said of itself outlives it: it may have become ready since the last look.
                if self._board.phase(worker) in {Phase.READY, Phase.DRAINING}:
                    self._was_ready.add(worker)
                ended.append((worker, os.waitstatus_to_exitcode(state)))
            elif self._board.phase(worker) is Phase.READY:
                self._was_ready.add(worker)
                if self._board.silent_s(worker) > SILENT_S:
                    logger.critical("worker %d gives no sign of life: killed", pid)
                    os.kill(pid, signal.SIGKILL)
        return ended

    def _likely(self, code: int) -> str:
        if code < 0:
            return "it was killed, perhaps for want of memory: give it more (--memory-mb), or serve a smaller variant"
        if self._settings.memory_bytes is not None:
            # Under a cap allocations fail anywhere, also where a library then raises something else.
            return "see the traceback above; the cap on its memory (--memory-mb) may be too small"
        return "see the traceback above"

    def _plan_successor(self, worker: int, code: int) -> None:
        pause_s = self._pauses[worker]
        logger.error("worker ended", extra={"figures": {"worker": worker, "status": code, "successor_in_s": pause_s}})
        self._board.write(worker, Phase.STARTING)
        self._due[worker] = time.monotonic() + pause_s
        self._pauses[worker] = min(LONGEST_PAUSE_S, pause_s * 2)

    def _replace(self) -> None:
        for worker, due_s in list(self._due.items()):
            if time.monotonic() >= due_s:
                del self._due[worker]
                self._fork(worker)

    def _fork(self, worker: int) -> None:
        pid = os.fork()
        if pid:
            self._workers[pid] = worker
            self._board.write(worker, Phase.STARTING)
            if self._ending:  # the signal came while this one was in no list
                os.kill(pid, signal.SIGTERM)
            return
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os._exit(_work(self._settings, self._listener, self._keys, self._board, worker))

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ending = True
        self._due.clear()
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in list(self._workers):
            os.kill(pid, number)


def serve(settings: ServeSettings) -> int:
    """Serve a bundle until told to stop; returns the exit status. Raises UserError for what cannot be served."""
    log_to_stderr()
    return Supervisor(settings).run()


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UserError: the address is in use, not ours, or not allowed.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        msg = f"{host} port {port}: {error.strerror}; help: another --port, or end what listens there"
        raise UserError(msg) from error
    return listener


def warn_when_open(host: str, keys: KeyRing) -> None:
    """Say so when anybody on the network can ask."""
    if not host.startswith("127.") and host != "::1" and not keys:
        logger.warning("listening on %s without an API key: anybody who reaches it may ask; help: --api-keys", host)


def _work(settings: ServeSettings, listener: socket.socket, keys: KeyRing, board: Board, worker: int) -> int:
    """Be a worker; returns its exit status."""
    # One thread tokenizes: the library's own pool would take the cores that ONNX Runtime was given.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        from serve.worker import work

        return work(settings, listener=listener, keys=keys, board=board, worker=worker)
    except UserError as error:
        tell(str(error))
        return REFUSED
    except BaseException:
        logger.exception("the worker failed")
        return 2


def tell(message: str) -> None:
    """Print what was wrong for the user, in the form that every command has."""
    print(f"error: {message}", file=sys.stderr, flush=True)


def _wake_up(_number: int, _frame: FrameType | None) -> None:
    """SIGCHLD: the wakeup descriptor has done its work already."""
