"""The least that HTTP costs in Python: a server on uvloop and httptools that reads requests and answers fixed bytes.

    python benchmarks/serving/bare.py PORT

Nothing is decoded, computed or counted. It answers as many requests at a time as our server's batches have texts at
saturation, since what the kernel and the event loop take for a request depends on how many come at once. That is what
every server on this road pays beside its model.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from typing import Any, ClassVar

import httptools
import psutil
import uvloop
from wire import Generator

TEXTS_A_BATCH = 11
BODY = b"x" * 400
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Bare(asyncio.Protocol):
    """One connection."""

    waiting: ClassVar[list[Any]] = []

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - uvloop's own class
        """Begin."""
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Wait for the others of a batch; the last one answers all."""
        self.waiting.append(self.transport)
        if len(self.waiting) == TEXTS_A_BATCH:
            for transport in self.waiting:
                transport.write(ANSWER)
            self.waiting.clear()


def cpu_us(payloads: list[bytes], connections: int, seconds: float) -> float:
    """Return the microseconds of CPU that such a server on core 0 takes for a request."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(["taskset", "-c", "0", sys.executable, __file__, str(port)]) as server:
        try:
            while not _listens(port):
                time.sleep(0.05)
            before_s = sum(psutil.Process(server.pid).cpu_times()[:2])
            seen = Generator(port, payloads).closed(connections, seconds)
            spent_s = sum(psutil.Process(server.pid).cpu_times()[:2]) - before_s
        finally:
            server.terminate()
    return 1e6 * spent_s / seen.statuses[200]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1])))
