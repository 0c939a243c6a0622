"""Soak, fuzz and chaos: minutes each, run by ``make test-long``."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.served import WORDS, Running, running, write_bundle

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

SOAK_REQUESTS = 100_000
FUZZ_INPUTS = 100_000
CLIENTS = 16
MIB = 2**20


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "words")


@pytest.fixture
def server(bundle: Path) -> Iterator[Running]:
    with running(bundle, "--threads", "1") as started:
        yield started


def rss_bytes(server: Running) -> int:
    root = psutil.Process(server.process.pid)
    return sum(process.memory_info().rss for process in [root, *root.children(recursive=True)])


async def raw_exchange(server: Running, payloads: Iterator[bytes], outcomes: Counter[str]) -> None:
    """Send each payload on a kept connection, a new one where the server closed it, and note the statuses."""
    parts = urlsplit(server.url)
    reader = writer = None
    for payload in payloads:
        if writer is None or writer.is_closing():
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        assert reader is not None
        writer.write(payload)
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await asyncio.wait_for(reader.readexactly(length), 30)
        except (asyncio.IncompleteReadError, ConnectionError):
            outcomes["closed"] += 1
            writer.close()
            writer = None
            continue
        status = head[9:12].decode()
        outcomes[status] += 1
        if status.startswith("5"):
            assert b'"reason"' in body, body
            outcomes[body.decode()] += 1
        if b"connection: close" in head.lower():
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


async def all_clients(server: Running, payloads: Iterator[bytes]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    await asyncio.gather(*(raw_exchange(server, payloads, outcomes) for _ in range(CLIENTS)))
    return outcomes


def request(path: str, body: bytes, headers: bytes = b"") -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: x\r\n%scontent-length: %d\r\n\r\n%s" % (path.encode(), headers, len(body), body)


def test_memory_is_flat_over_random_lengths(server: Running) -> None:
    draw = random.Random(0)

    def requests(count: int) -> Iterator[bytes]:
        for _ in range(count):
            text = " ".join(draw.choices(WORDS, k=draw.randint(1, 60)))
            yield request("/predict", b'{"inputs": "%s"}' % text.encode())

    asyncio.run(all_clients(server, requests(SOAK_REQUESTS // 10)))
    warm = rss_bytes(server)
    outcomes = asyncio.run(all_clients(server, requests(SOAK_REQUESTS)))
    assert outcomes == {"200": SOAK_REQUESTS}
    assert rss_bytes(server) - warm < 8 * MIB


def mutations(count: int) -> Iterator[bytes]:
    """Valid requests of every protocol, most of them damaged somewhere in the body, some in the head."""
    draw = random.Random(1)
    oip = (
        b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["cat dog"]}],"outputs":[{"name":"logits"}]}'
    )
    ids = b'{"inputs":[{"name":"input_ids","shape":[1,3],"datatype":"INT64","data":[2,9,3]}]}'
    binary = b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":7}}]}'
    tail = b"\x03\x00\x00\x00cat"
    forms = [
        ("/predict", b'{"inputs": ["cat", "dog"], "parameters": {"top_k": 2}}', b""),
        ("/v1/models/words:predict", b'{"instances": [{"text": "cat"}]}', b""),
        ("/v2/models/words/infer", oip, b""),
        ("/v2/models/words/infer", ids, b""),
        ("/v2/models/words/infer", binary + tail, b"inference-header-content-length: %d\r\n" % len(binary)),
    ]
    for number in range(count):
        path, body, headers = draw.choice(forms)
        damaged = bytearray(body)
        for _ in range(draw.randint(0, 4)):
            place = draw.randrange(len(damaged))
            change = draw.random()
            if change < 0.5:
                damaged[place] = draw.randrange(256)
            elif change < 0.75:
                del damaged[place : place + draw.randint(1, 8)]
            else:
                damaged[place:place] = damaged[: draw.randint(1, 20)]
            damaged = damaged or bytearray(b"x")
        if number % 50 == 0:
            headers += draw.choice(
                [
                    b"content-encoding: gzip\r\n",
                    b"inference-header-content-length: 9\r\n",
                    b"x-breakeven-timeout-ms: a\r\n",
                ]
            )
        yield request(path, bytes(damaged), headers)


def test_damaged_requests_get_typed_answers(server: Running) -> None:
    outcomes = asyncio.run(all_clients(server, mutations(FUZZ_INPUTS)))
    print(outcomes)
    assert outcomes["200"] > 0
    assert outcomes["400"] > FUZZ_INPUTS // 4
    assert not [status for status in outcomes if status.startswith("5")], outcomes
    assert not server.events("worker ended")


def test_random_bytes_crash_nothing(server: Running) -> None:
    draw = random.Random(2)
    parts = urlsplit(server.url)
    for _ in range(2_000):
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as client:
            head = draw.choice([b"", b"POST /predict HTTP/1.1\r\n", b"GET /v2 HTTP/1.1\r\nhost: x\r\n"])
            client.sendall(head + draw.randbytes(draw.randint(1, 300)))
            client.shutdown(socket.SHUT_WR)
            try:
                while client.recv(65536):
                    pass
            except ConnectionError:
                pass
    assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
    assert not server.events("worker ended")


def test_sigterm_in_the_middle_of_thousands_loses_none(bundle: Path) -> None:
    async def client(server: Running, outcomes: Counter[str], enough: asyncio.Event) -> None:
        while True:
            try:
                async with httpx.AsyncClient(base_url=server.url, timeout=30) as session:
                    for _ in range(20):
                        answer = await session.post("/predict", json={"inputs": "cat dog"})
                        outcomes[str(answer.status_code)] += 1
                        if outcomes["200"] == 5_000:
                            enough.set()
            except httpx.ConnectError:
                return
            except httpx.HTTPError as error:
                outcomes[f"lost: {error!r}"] += 1

    async def load_and_terminate(server: Running) -> Counter[str]:
        outcomes: Counter[str] = Counter()
        enough = asyncio.Event()
        clients = [asyncio.create_task(client(server, outcomes, enough)) for _ in range(CLIENTS)]
        await enough.wait()
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*clients)
        return outcomes

    with running(bundle, "--threads", "1") as server:
        outcomes = asyncio.run(load_and_terminate(server))
        assert server.process.wait(30) == 0
    assert set(outcomes) == {"200"}, outcomes
    assert outcomes["200"] >= 5_000


def test_killed_workers_are_replaced_under_load(bundle: Path) -> None:
    with running(bundle, "--workers", "2", "--threads", "1") as server:
        outcomes: Counter[str] = Counter()
        draw = random.Random(3)
        killed: set[int] = set()
        give_up_s = time.monotonic() + 120
        while len(killed) < 5 and time.monotonic() < give_up_s:
            for _ in range(50):
                try:
                    outcomes[
                        str(httpx.post(f"{server.url}/predict", json={"inputs": "cat"}, timeout=30).status_code)
                    ] += 1
                except httpx.HTTPError:
                    outcomes["broken off"] += 1
            living = {record["pid"] for record in server.events("model warm")} - killed
            if len(living) == 2:
                victim = draw.choice(sorted(living))
                killed.add(victim)
                os.kill(victim, signal.SIGKILL)
        assert len(killed) == 5
        assert set(outcomes) <= {"200", "broken off"}, outcomes
        assert outcomes["broken off"] <= len(killed)
        assert server.terminate() == 0
