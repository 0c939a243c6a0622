"""Starts the known-answer server, and a bench that measures it, for the tests of the load generator."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadtests.config import LoadTestConfig
from loadtests.cores import share_out
from loadtests.generator import GeneratorProcess
from loadtests.measure import Bench
from loadtests.rows import Rows
from loadtests.server import ServerProcess, Target, free_port

SERVER = Path(__file__).with_name("known_server.py")
CORES = share_out(os.sched_getaffinity(0), profile="cpu")


@dataclass(frozen=True)
class Told:
    """What a known server says of each answer: its own time, the service time, and the line that the query stood in."""

    total_s: NDArray[np.float64]
    service_s: NDArray[np.float64]
    line: NDArray[np.int64]


def told(rows: Rows) -> Told:
    """Return what the known server said; every query must have been answered."""
    parts = [
        re.fullmatch(r"total;dur=(.*), service;dur=(.*), line;desc=(.*)", each or "") for each in rows.server_timing
    ]
    total, service, line = zip(*(part.groups() for part in parts if part), strict=True)
    assert len(total) == len(rows)
    return Told(np.array(total, float) / 1e3, np.array(service, float) / 1e3, np.array(line, int))


@contextmanager
def ahead_of_other_work() -> Iterator[None]:
    """Start processes that come before the machine's other work, where that is allowed.

    A known answer is about the server's own clock; a busy neighbour would add its time slices of 4 ms.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def known_server(folder: Path, *options: str, host: str = "127.0.0.1") -> Iterator[Target]:
    port = free_port()
    url = f"http://{host}:{port}"
    command = [sys.executable, str(SERVER), str(port), "--host", host, *options]
    with ExitStack() as stack:
        with ahead_of_other_work():
            process = ServerProcess(command, url=url, cores=CORES.server, log=folder / "known.log")
            server = stack.enter_context(process)
        yield Target(url=url, variant="known", profile="external", model="m", pid=server.pid)


@contextmanager
def bench_in(folder: Path, config: LoadTestConfig) -> Iterator[Bench]:
    texts_file = folder / "texts.txt"
    texts_file.write_text("\n".join(f"what is the answer to question {i}?" for i in range(50)))
    with ExitStack() as stack:
        with ahead_of_other_work():
            generator = stack.enter_context(GeneratorProcess(cores=CORES.generator, log=folder / "generator.log"))
        yield Bench(generator, config, texts_file, folder / "loads", folder, {})
