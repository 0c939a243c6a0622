"""SIGTERM loses nothing that was accepted; a worker that dies is replaced and the port stays up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from serve.counters import PREFIX
from tests.served import Running, running, write_bundle

pytestmark = pytest.mark.integration

PATIENT = {"x-breakeven-timeout-ms": "20000"}
REQUEST = b'POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 17\r\n\r\n{"inputs": "cat"}'


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "words")


def connect(server: Running) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)


def test_accepted_connections_are_answered_after_sigterm(bundle: Path) -> None:
    with running(bundle) as server:
        connections = [connect(server) for _ in range(10)]
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)  # the late sender of the drain test: it sends when the server is already draining
        for connection in connections:
            connection.sendall(REQUEST)
        answers = [connection.recv(4096) for connection in connections]
        for connection in connections:
            connection.close()
        assert server.process.wait(30) == 0
    assert all(answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer for answer in answers)
    assert server.events("drained")[0]["cut_off"] == 0


def test_a_running_batch_is_finished_after_sigterm(bundle: Path) -> None:
    with running(bundle) as server:
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{server.url}/predict", json={"inputs": "longword"}, timeout=30))
        )
        asking.start()
        give_up_s = time.monotonic() + 20
        while 'breakeven_in_flight{model="words"} 1.0' not in httpx.get(f"{server.url}/metrics").text:
            assert time.monotonic() < give_up_s
            assert asking.is_alive()
        assert server.terminate() == 0
        asking.join(30)
    assert answers[0].status_code == 200


async def hammer(server: Running, outcomes: Counter[str], *, stop: asyncio.Event, enough: asyncio.Event) -> None:
    """Ask again and again over new and kept connections; a connection that was never made is not a lost request."""
    while not stop.is_set():
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
            for _ in range(5):
                try:
                    answer = await client.post("/predict", json={"inputs": "cat"}, headers=PATIENT)
                except httpx.ConnectError:
                    outcomes["refused"] += 1
                    stop.set()
                    break
                except httpx.HTTPError as error:
                    outcomes[f"lost: {error!r}"] += 1
                    continue
                outcomes[str(answer.status_code)] += 1
                if outcomes["200"] == 500:
                    enough.set()


def test_sigterm_under_load_loses_nothing(bundle: Path) -> None:
    async def load_and_terminate(server: Running) -> Counter[str]:
        outcomes: Counter[str] = Counter()
        stop, enough = asyncio.Event(), asyncio.Event()
        clients = [asyncio.create_task(hammer(server, outcomes, stop=stop, enough=enough)) for _ in range(16)]
        await enough.wait()
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*clients)
        return outcomes

    with running(bundle) as server:
        outcomes = asyncio.run(load_and_terminate(server))
        assert server.process.wait(30) == 0
    assert set(outcomes) == {"200", "refused"}, outcomes


def test_a_killed_worker_is_replaced_and_the_port_stays_up(bundle: Path) -> None:
    with running(bundle, "--workers", "2", "--threads", "1") as server:
        warm = server.events("model warm")
        assert len(warm) == 2
        os.kill(warm[0]["pid"], signal.SIGKILL)
        # The other worker, and then the successor, answer; only what was on the killed one's connections is lost.
        answered = 0
        give_up_s = time.monotonic() + 30
        while len(server.events("model warm")) < 3 and time.monotonic() < give_up_s:
            answered += httpx.post(f"{server.url}/predict", json={"inputs": "cat"}, timeout=20).status_code == 200
        assert len(server.events("model warm")) == 3
        assert answered > 0
        assert server.events("worker ended")[0]["status"] == -signal.SIGKILL
        assert server.terminate() == 0


def test_counters_of_several_workers_are_one_truth(bundle: Path) -> None:
    with running(bundle, "--workers", "2", "--threads", "1") as server:
        for _ in range(60):  # a new connection each, so that both workers get some
            assert httpx.post(f"{server.url}/predict", json={"inputs": ["cat", "dog"]}).status_code == 200
        for _ in range(4):
            text = httpx.get(f"{server.url}/metrics").text
            assert 'breakeven_requests_total{model="words",protocol="hf",status="200"} 60.0' in text
            assert 'breakeven_texts_total{model="words"} 120.0' in text


def test_levels_are_those_of_all_workers_that_live(bundle: Path) -> None:
    def in_flight(client: httpx.Client) -> str:
        return client.get("/metrics").text.partition('breakeven_in_flight{model="words"} ')[2].partition("\n")[0]

    def wait_for(requests: str, clients: list[httpx.Client]) -> None:
        give_up_s = time.monotonic() + 20
        while {in_flight(client) for client in clients} != {requests}:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)

    with running(bundle, "--workers", "2", "--threads", "1") as server, contextlib.ExitStack() as stack:
        # Kept connections, so that each is one worker's, and so many that both have some.
        clients = [stack.enter_context(httpx.Client(base_url=server.url, timeout=20)) for _ in range(10)]
        wait_for("0.0", clients)
        asking = [connect(server) for _ in range(10)]
        for one in asking:
            one.sendall(REQUEST.replace(b"17", b"23").replace(b"cat", b"stuckword"))
        wait_for("10.0", clients)
        workers = psutil.Process(server.process.pid).children()
        workers[0].kill()
        for one in asking:
            one.close()
        give_up_s = time.monotonic() + 20
        while len(server.events("model warm")) < 3:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
        wait_for("0.0", [stack.enter_context(httpx.Client(base_url=server.url, timeout=20))])
        for process in (server.process, workers[1]):  # the one that is stuck would not end by itself for long
            process.kill()


def test_what_a_killed_supervisor_left_is_removed_by_the_next(bundle: Path, tmp_path: Path) -> None:
    with running(bundle, "--workers", "2", "--threads", "1", TMPDIR=str(tmp_path)) as server:
        workers = psutil.Process(server.process.pid).children()
        server.process.kill()
        assert not psutil.wait_procs(workers, timeout=30)[1]  # they end by themselves
    (left,) = tmp_path.glob(f"{PREFIX}*")
    with running(bundle, "--workers", "2", "--threads", "1", TMPDIR=str(tmp_path)) as server:
        (own,) = tmp_path.glob(f"{PREFIX}*")
        assert own != left
        assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
        assert 'breakeven_texts_total{model="words"} 1.0' in httpx.get(f"{server.url}/metrics").text
    assert not list(tmp_path.glob(f"{PREFIX}*"))
