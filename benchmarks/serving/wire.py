"""A small load generator on raw sockets: it costs so little CPU that one core of it saturates any server here.

Closed loop: so many connections, each sends its next request when its answer is there. Open loop: requests leave at
times drawn beforehand (Poisson), on free connections, and latency counts from the drawn time.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Seen:
    """What came back: (time of answer, latency) of each 200, in seconds, and how many of each status."""

    answers: list[tuple[float, float]] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wall_s: float = 0.0

    @property
    def rate(self) -> float:
        """Right answers a second."""
        return self.statuses[200] / self.wall_s

    def latency_ms(self, share: float) -> float:
        """Return the order statistic of the right answers' latencies, in ms."""
        ordered = sorted(latency for _, latency in self.answers)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def goodput(self, slo_s: float) -> float:
        """Return right answers within the objective, a second."""
        return sum(latency <= slo_s for _, latency in self.answers) / self.wall_s


def requests(path: str, template: str, texts: Sequence[str]) -> list[bytes]:
    """Return one POST a text; the template has ``{{text}}`` where its JSON string goes."""
    found = []
    for text in texts:
        body = template.replace("{{text}}", json.dumps(text)).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        found.append(head.encode() + b"\r\n\r\n" + body)
    return found


class Generator:
    """Connections to one server.

    Args:
        port: on the loopback.
        payloads: requests, sent in turn.
    """

    def __init__(self, port: int, payloads: Sequence[bytes]) -> None:
        self._port = port
        self._payloads = payloads
        self._next = 0
        self._selector = selectors.DefaultSelector()
        self._sent_s: dict[socket.socket, float] = {}
        self._received: dict[socket.socket, bytes] = {}

    def closed(self, connections: int, seconds: float) -> Seen:
        """Keep so many requests in flight for so long."""
        seen, begin_s = Seen(), time.perf_counter()
        for _ in range(connections):
            self._send(self._connect(), time.perf_counter())
        while (now_s := time.perf_counter()) < begin_s + seconds:
            for client in self._answered(seen, 0.5):
                self._send(client, time.perf_counter())
        seen.wall_s = now_s - begin_s
        self._close()
        return seen

    def open(self, rate: float, seconds: float, *, seed: int = 0, drain_s: float = 2.0) -> Seen:
        """Offer Poisson arrivals; latency counts from the drawn time, whether or not a connection was free."""
        draw, seen, begin_s = random.Random(seed), Seen(), time.perf_counter()
        due_s, free = begin_s + draw.expovariate(rate), [self._connect() for _ in range(32)]
        while (now_s := time.perf_counter()) < begin_s + seconds + drain_s:
            while due_s <= now_s and due_s < begin_s + seconds:
                self._send(free.pop() if free else self._connect(), due_s)
                due_s += draw.expovariate(rate)
            if now_s > begin_s + seconds and not self._sent_s:
                break
            free += self._answered(seen, max(0.0, min(due_s - now_s, 0.05)))
        seen.statuses[0] += len(self._sent_s)  # never answered
        seen.wall_s = seconds
        self._close()
        return seen

    def _connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self._port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ)
        self._received[client] = b""
        return client

    def _send(self, client: socket.socket, counted_from_s: float) -> None:
        self._sent_s[client] = counted_from_s
        client.sendall(self._payloads[self._next % len(self._payloads)])
        self._next += 1

    def _answered(self, seen: Seen, wait_s: float) -> list[socket.socket]:
        done = []
        for key, _ in self._selector.select(wait_s):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            self._received[client] += client.recv(65536)
            status = _whole(self._received[client])
            if status is None:
                continue
            now_s = time.perf_counter()
            seen.statuses[status] += 1
            sent_s = self._sent_s.pop(client)
            if status == 200:
                seen.answers.append((now_s, now_s - sent_s))
            self._received[client] = b""
            done.append(client)
        return done

    def _close(self) -> None:
        for client in self._received:
            client.close()
        self._selector.close()


def _whole(received: bytes) -> int | None:
    """Return the status of an answer that is there as a whole, else None."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        return int(head[9:12]) if body.endswith(b"0\r\n\r\n") else None
    length = int(lowered.split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head[9:12]) if len(body) >= length else None
