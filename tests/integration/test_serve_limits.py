"""Load beyond what fits, clients that leave, dawdle or send garbage, and backends that hang: the port stays up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from serve.connection import HEAD_BYTES
from tests.served import Running, running, write_bundle

pytestmark = pytest.mark.integration

SLOW = "slowword"
# A slow machine takes longer for a long batch than the server's own deadline allows.
PATIENT = {"x-breakeven-timeout-ms": "60000"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "words")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Running]:
    with running(bundle, "--threads", "1", "--queue-tokens", "300") as started:
        yield started


def counter(server: Running, name: str, **labels: str) -> float:
    found = 0.0
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        if line.startswith(name + "{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            found += float(line.rsplit(" ", 1)[1])
    return found


def wait_for_in_flight(server: Running, requests: int) -> None:
    give_up_s = time.monotonic() + 20
    while counter(server, "breakeven_in_flight") < requests:
        assert time.monotonic() < give_up_s, f"never {requests} in flight: what was to keep the server busy has ended"


def connect(server: Running) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)


def raw_request(text: str) -> bytes:
    body = b'{"inputs": "%s"}' % text.encode()
    return b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def test_a_full_queue_sheds_with_a_reason_and_health_stays_quick(server: Running) -> None:
    async def flood() -> tuple[Counter[tuple[int, str]], list[float]]:
        seen: Counter[tuple[int, str]] = Counter()
        checks: list[float] = []
        async with httpx.AsyncClient(
            base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=500)
        ) as client:

            async def ask() -> None:
                answer = await client.post("/predict", json={"inputs": f"{SLOW} what is the name of a big old dog"})
                seen[answer.status_code, answer.json()["reason"] if answer.status_code != 200 else ""] += 1
                if answer.status_code == 429:
                    assert int(answer.headers["retry-after"]) >= 1

            asking = asyncio.gather(*(ask() for _ in range(120)))
            for _ in range(20):
                begin_s = time.perf_counter()
                assert (await client.get("/v2/health/live")).status_code == 200
                checks.append(time.perf_counter() - begin_s)
            await asking
        return seen, checks

    seen, checks = asyncio.run(flood())
    assert seen[429, "queue_full"] > 0
    assert seen[200, ""] > 0
    assert set(seen) <= {(200, ""), (429, "queue_full"), (503, "deadline")}
    assert counter(server, "breakeven_shed_total", reason="queue_full") == seen[429, "queue_full"]
    assert sorted(checks)[len(checks) // 2] < 0.25


def test_a_request_that_can_never_fit_is_refused_for_good(server: Running) -> None:
    answer = httpx.post(f"{server.url}/predict", json={"inputs": ["what is the name"] * 200})
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")
    assert "retry-after" not in answer.headers


def test_deadlines_come_from_header_and_parameter(server: Running) -> None:
    busy = connect(server)
    busy.sendall(raw_request(SLOW))
    late = httpx.post(f"{server.url}/predict", json={"inputs": "cat"}, headers={"x-breakeven-timeout-ms": "0.001"})
    assert (late.status_code, late.json()["reason"]) == (503, "deadline")
    body = {
        "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["cat"]}],
        "parameters": {"timeout": 1},
    }
    late = httpx.post(f"{server.url}/v2/models/words/infer", json=body)
    assert (late.status_code, late.json()["reason"]) == (503, "deadline")
    assert busy.recv(4096).startswith(b"HTTP/1.1 200")
    busy.close()


def test_the_work_of_departed_clients_is_never_run(server: Running) -> None:
    before = {name: counter(server, f"breakeven_{name}") for name in ("departed_total", "batch_texts_sum")}
    busy = connect(server)
    busy.sendall(raw_request("longword"))
    wait_for_in_flight(server, 1)  # it runs now, and what follows waits for it
    gone = [connect(server) for _ in range(8)]
    for client in gone:
        client.sendall(raw_request("cat"))
    wait_for_in_flight(server, 9)
    for client in gone:
        client.close()
    assert busy.recv(4096).startswith(b"HTTP/1.1 200")
    busy.close()
    assert httpx.post(f"{server.url}/predict", json={"inputs": "dog"}).status_code == 200
    assert counter(server, "breakeven_departed_total") - before["departed_total"] == 8
    assert counter(server, "breakeven_batch_texts_sum") - before["batch_texts_sum"] == 2


def test_urgent_requests_overtake(server: Running) -> None:
    async def ask() -> list[str]:
        order: list[str] = []
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:

            async def one(name: str, text: str, priority: str) -> None:
                headers = {"x-breakeven-priority": priority, **PATIENT}
                assert (await client.post("/predict", json={"inputs": text}, headers=headers)).status_code == 200
                order.append(name)

            first = asyncio.create_task(one("first", "longword", "low"))
            await asyncio.to_thread(wait_for_in_flight, server, 1)  # it is running now, and what follows waits for it
            await asyncio.gather(
                *(one("low", f"{SLOW} what is the name of a big one", "low") for _ in range(4)),
                one("high", "cat", "high"),
                first,
            )
        return order

    order = asyncio.run(ask())
    assert order.index("high") == 1, order


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        random.Random(1).randbytes(2000),
    ],
    ids=["tls", "version", "negative", "huge", "chunk", "url", "headers", "random"],
)
def test_garbage_is_answered_or_dropped_and_the_server_lives(server: Running, garbage: bytes) -> None:
    with connect(server) as client:
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200


def test_a_head_that_is_too_large_is_refused_and_cut_off(server: Running) -> None:
    with connect(server) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\n")
        assert httpx.get(f"{server.url}/v2/health/live").status_code == 200  # so the first line has been read, too
        client.sendall((b"name: value\r\n" * HEAD_BYTES)[: HEAD_BYTES + 1])
        head, _, body = whole_answer(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["reason"] == "too_large"


def whole_answer(client: socket.socket) -> bytes:
    """Read until the server closes."""
    found = b""
    while part := client.recv(65536):
        found += part
    return found


@pytest.fixture(scope="module")
def impatient(bundle: Path) -> Iterator[Running]:
    with running(bundle, "--receive-s", "0.1", "--keep-alive-s", "1", "--threads", "1") as started:
        yield started


@pytest.mark.parametrize(
    "part",
    [
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-le",
        b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n\r\n{",
        raw_request("cat") + b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n\r\n{",
    ],
    ids=["head", "body", "second"],
)
def test_a_dawdling_client_is_told_and_cut_off(impatient: Running, part: bytes) -> None:
    with connect(impatient) as client:
        client.sendall(part)
        answers = whole_answer(client)
    last = answers[answers.rindex(b"HTTP/1.1 ") :]
    assert answers.count(b"HTTP/1.1 200") == part.startswith(raw_request("cat"))
    assert last.startswith(b"HTTP/1.1 408")
    assert json.loads(last.partition(b"\r\n\r\n")[2])["reason"] == "too_slow"


def test_a_slow_request_does_not_cost_the_answers_to_those_before_it(impatient: Running) -> None:
    with connect(impatient) as client:
        client.sendall(raw_request("longword") * 3 + b"POST /predict HT")
        answers = whole_answer(client)
    assert [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"200", b"408"]
    computed_ms = [float(part.partition(b",")[0]) for part in answers.split(b"compute;dur=")[1:]]
    assert sum(computed_ms) > 100  # longer than --receive-s


def test_an_idle_connection_is_kept_for_its_time(impatient: Running, server: Running) -> None:
    """Clients that hold an idle connection for longer than the server does lose requests: 5 s are uvicorn's default."""
    with connect(impatient) as short, connect(server) as long:
        for client in (short, long):
            client.sendall(raw_request("cat"))
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
        begin_s = time.monotonic()
        assert short.recv(4096) == b""
        assert 0.9 < time.monotonic() - begin_s < 5
        time.sleep(max(0.0, begin_s + 5.5 - time.monotonic()))  # the idle time is what is tested
        long.sendall(raw_request("dog"))
        assert long.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_stuck_backend_ends_its_worker_and_a_new_one_serves(bundle: Path) -> None:
    with running(bundle, "--stuck-s", "1") as server:
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{server.url}/predict", json={"inputs": "stuckword"}, timeout=20)
        server.wait_until_ready()
        assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
        assert len(server.events("model warm")) == 2


def test_out_of_memory_is_a_typed_answer_to_the_guilty_text_alone(server: Running) -> None:
    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            texts = ["longword", "cat", "hugeword", "dog"]  # the first one lets the others wait, and so share a batch
            asking = (client.post("/predict", json={"inputs": text}, headers=PATIENT) for text in texts)
            return await asyncio.gather(*asking)

    answers = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [200, 200, 503, 200]
    assert answers[2].json()["reason"] == "out_of_memory"
    assert int(answers[2].headers["retry-after"]) >= 1
    assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
    assert not server.events("worker ended")


def test_a_worker_outlives_the_end_of_its_own_memory(bundle: Path, server: Running) -> None:
    def ask(where: Running, text: str) -> httpx.Response:
        return httpx.post(f"{where.url}/predict", json={"inputs": text}, headers=PATIENT, timeout=60)

    with running(bundle, "--threads", "1", "--memory-mb", "320") as capped:
        for _ in range(3):
            refused = ask(capped, "bigword")
            assert (refused.status_code, refused.json()["reason"]) == (503, "out_of_memory")
            assert int(refused.headers["retry-after"]) >= 1
            assert ask(capped, "cat dog").status_code == 200
        assert not capped.events("worker ended")
        assert capped.terminate() == 0
    assert ask(server, "bigword").status_code == 200  # it was the cap


def test_a_worker_that_the_kernel_kills_for_want_of_memory_is_replaced(bundle: Path) -> None:
    with running(bundle, "--threads", "1") as server:
        os.kill(server.events("model warm")[0]["pid"], signal.SIGKILL)  # what the kernel does
        give_up_s = time.monotonic() + 30
        while len(server.events("model warm")) < 2:
            assert time.monotonic() < give_up_s
            connect(server).close()  # the port never closes
        server.wait_until_ready()
        assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200


def test_tls(bundle: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with running(bundle, "--tls-certificate", str(certificate), "--tls-key", str(key), ready=False) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        give_up_s = time.monotonic() + 20
        while time.monotonic() < give_up_s:
            with contextlib.suppress(httpx.ConnectError):  # it does not listen yet
                if httpx.get(f"{server.url}/v2/health/ready", verify=context, timeout=20).status_code == 200:
                    break
        answer = httpx.post(f"{server.url}/predict", json={"inputs": "cat"}, verify=context, timeout=20)
        assert answer.status_code == 200


def test_the_idle_server_rests(server: Running) -> None:
    worker = server.events("model warm")[0]["pid"]

    def cpu_s() -> float:  # by the scheduler's own nanoseconds: ticks over-count what wakes up with them
        tasks = Path(f"/proc/{worker}/task").glob("*/schedstat")
        return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9

    def share() -> float:
        before_s = cpu_s()
        time.sleep(4)  # the window that is measured
        return (cpu_s() - before_s) / 4

    # A slow spell of the machine makes the same few wake-ups cost more, and only ever more.
    assert any(0 < share() <= 0.01 for _ in range(3))
