"""What the generator itself can make: its rate against a server that does nothing, measured before anything else.

Run as a module it is that null server: any request gets the same small answer at once.
"""

from __future__ import annotations

import asyncio
import sys

from loadtests.measure import Bench
from loadtests.server import ServerProcess, Target, free_port
from testbed.records import LoadTestRun

CEILING_S = 1.5
CEILING_USERS = 32
BODY = b'{"outputs":[{"name":"label","shape":[1],"datatype":"BYTES","data":["null"]}],"score":0}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def measure_ceiling(bench: Bench, *, cores: tuple[int, ...] | None) -> LoadTestRun:
    """Drive a null server with a closed loop, keep the rate as the bench's ceiling, and return the run."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "loadtests.ceiling", str(port)]
    with ServerProcess(command, url=url, cores=cores, log=bench.logs / "null-server.log"):
        target = Target(url=url, variant="null-server", profile="external", model="null")
        run = bench.run(target, scenario="ClosedLoop", duration_s=CEILING_S, purpose="ceiling", users=CEILING_USERS)
    bench.ceiling_qps = run.achieved_qps
    return run


class _Null(asyncio.Protocol):
    """Answers each request once its body is whole."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        while (whole := _length(self._buffer)) and len(self._buffer) >= whole:
            self._buffer = self._buffer[whole:]
            self._transport.write(ANSWER)


def _length(buffer: bytes) -> int:
    """Return the bytes of the first request in the buffer, 0 while its head is not whole."""
    head, separator, _ = buffer.partition(b"\r\n\r\n")
    if not separator:
        return 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(head) + 4 + int(line.split(b":")[1])
    return len(head) + 4


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Null, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
