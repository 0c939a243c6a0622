"""The generator as a process: started once, it carries out one plan after the other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from loadtests.cores import pinned
from loadtests.plan import Outcome, Plan
from loadtests.server import free_port
from testbed.errors import UserError

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
OWN_QUIET_S = 30.0


class GeneratorProcess:
    """Locust in a process of its own (it monkey-patches the one that imports it); use it as a context manager.

    Args:
        cores: cores it is pinned to, or None.
        log: file that gets what it says.
        processes: worker processes that share each plan.
    """

    def __init__(self, *, cores: tuple[int, ...] | None, log: Path, processes: int = 1) -> None:
        self.cores = cores
        self._processes = processes
        self._log = log
        self._num_plans = 0

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix="breakeven-rows-"))
        command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--plans", "--scratch", str(self._scratch)]
        command += ["--headless", "--only-summary", "--reset-stats", "--loglevel", "WARNING"]
        if self._processes > 1:
            port = str(free_port())
            command += ["--processes", str(self._processes), "--master-port", port, "--master-bind-port", port]
        with pinned(self.cores), self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if error is not None:
            self._process.terminate()
        self._process.stdin.close()
        try:
            self._process.wait(OWN_QUIET_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        # The generator does the same when its input ends, so that neither's death by a signal leaves the rows behind.
        shutil.rmtree(self._scratch, ignore_errors=True)

    def next_rows_file(self) -> Path:
        """Return where the next plan's raw rows go; they stay there until the generator ends."""
        self._num_plans += 1
        return self._scratch / f"{self._num_plans}.parquet"

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def run(self, plan: Plan) -> Outcome:
        """Carry out one plan and return what came of it.

        Raises:
            UserError: the generator ended; its last words are in the message.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(plan.model_dump_json() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        for line in self._process.stdout:
            if line.startswith("{"):
                return Outcome.model_validate(json.loads(line))
        raise self._ended()

    def _ended(self) -> UserError:
        self._process.wait()
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:]
        said = "\n".join(words)
        return UserError(
            f"the load generator ended with status {self._process.returncode}; help: see {self._log}\n{said}"
        )
