"""A server whose answers are known: one query at a time, first come first served, with a service time by formula.

With ``--lines`` it is so many such servers, between which queries are drawn at random: Poisson arrivals stay Poisson in
each, so many queries with a long service time are measured in a short run. Every answer says its line and its service
time, so that Lindley's recursion can be made on the same arrivals.

It can stall for a while, fail a share of its queries, forget to count them, and lie in its own timings, so that a load
test of it is judged against arithmetic. Run as a script; it answers the Open Inference Protocol and ``/metrics``.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import time
from dataclasses import dataclass, field

import numpy as np

from loadtests.alarm import Alarm

AWAKE_S = 0.001  # before a completion: an idle core wakes up too late for an exact answer. Many lines keep it awake.


@dataclass(order=True)
class Query:
    """One that waits or is served, in the order of completion."""

    due_s: float
    number: int
    came_s: float = field(compare=False)
    service_s: float = field(compare=False)
    line: int = field(compare=False)
    transport: asyncio.WriteTransport = field(compare=False)


class KnownServer:
    """Servers with a queue each: a query's completion is max(now, the last one of its line) + service time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._rng = np.random.default_rng(options.seed)
        self._alarm = Alarm()
        self._due: list[Query] = []
        self._free_s = [0.0] * options.lines
        self._awake_s = AWAKE_S if options.lines == 1 else 0.0
        self._num_queries = 0
        self._num_answered = 0
        asyncio.get_running_loop().add_reader(self._alarm.descriptor, self._ring)

    def arrive(self, transport: asyncio.WriteTransport) -> None:
        now_s = time.monotonic()
        options = self._options
        self._num_queries += 1
        if self._num_queries > options.warmup and self._rng.random() < options.error_rate:
            transport.write(_response(503, b'{"error": "busy", "reason": "queue_full"}'))
            return
        if len(self._due) >= options.queue:
            transport.write(_response(503, b'{"error": "busy", "reason": "queue_full"}'))
            return
        service_s = options.service_s
        if options.service == "exponential":
            service_s = float(self._rng.exponential(options.service_s))
        if self._num_queries == options.warmup + options.stall_at:
            service_s += options.stall_s
        line = int(self._rng.integers(options.lines)) if options.lines > 1 else 0
        due_s = self._free_s[line] = max(now_s, self._free_s[line]) + service_s
        query = Query(due_s, self._num_queries, now_s, service_s, line, transport)
        heapq.heappush(self._due, query)
        if self._due[0] is query:
            self._alarm.set(due_s - self._awake_s)

    def _ring(self) -> None:
        self._alarm.clear()
        while self._due and time.monotonic() < self._due[0].due_s <= time.monotonic() + self._awake_s:
            pass
        while self._due and self._due[0].due_s <= time.monotonic():
            query = heapq.heappop(self._due)
            self._num_answered += self._num_queries % 10 != 0 if self._options.forgets else 1
            took_ms = (query.due_s - query.came_s) * 1e3 * self._options.timing_factor
            told = f"total;dur={took_ms:.3f}, service;dur={query.service_s * 1e3:.6f}, line;desc={query.line}"
            body = b'{"outputs": [{"name": "label", "shape": [1], "datatype": "BYTES", "data": ["known"]}]}'
            query.transport.write(_response(200, body, f"Server-Timing: {told}\r\n"))
        if self._due:
            self._alarm.set(self._due[0].due_s - self._awake_s)

    def tell(self, path: str) -> bytes:
        if path == "/metrics":
            counter = "# TYPE breakeven_requests_total counter\nbreakeven_requests_total"
            return _response(200, f'{counter}{{status="200"}} {self._num_answered}\n'.encode(), kind="text/plain")
        return _response(200, json.dumps({"ready": True}).encode())


class Connection(asyncio.Protocol):
    def __init__(self, server: KnownServer) -> None:
        self._server = server
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            lengths = [
                line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            ]
            length = int(lengths[0]) if lengths else 0
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            method, path = head.decode().split()[:2]
            if method == "GET":
                self._transport.write(self._server.tell(path))
            else:
                self._server.arrive(self._transport)


def _response(status: int, body: bytes, extra: str = "", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--service", default="constant", choices=["constant", "exponential"])
    parser.add_argument("--service-s", type=float, default=0.005)
    parser.add_argument("--lines", type=int, default=1, help="servers between which queries are drawn at random")
    parser.add_argument("--stall-at", type=int, default=-1, help="the query, counted from 1, whose service stalls")
    parser.add_argument("--stall-s", type=float, default=0.0)
    parser.add_argument("--error-rate", type=float, default=0.0)
    parser.add_argument("--queue", type=int, default=10**9, help="queries that may wait; the others get 503")
    parser.add_argument("--timing-factor", type=float, default=1.0, help="what Server-Timing says over the truth")
    parser.add_argument("--forgets", action="store_true", help="count nine of ten answers")
    parser.add_argument("--warmup", type=int, default=8, help="queries before the first that errs or stalls")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    known = KnownServer(options)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(known), options.host, options.port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
