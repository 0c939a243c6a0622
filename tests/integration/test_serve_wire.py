"""What the lean road of inference must keep of HTTP: order, chunks, 100-continue, keep-alive, and refusals unread."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.served import LABELS, Running, running, write_bundle

pytestmark = pytest.mark.integration

BODY = b'{"inputs": "cat"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(write_bundle(tmp_path_factory.mktemp("bundles") / "words"), "--threads", "1") as started:
        yield started


@pytest.fixture
def client(server: Running) -> Iterator[socket.socket]:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as made:
        yield made


def post(body: bytes = BODY, *headers: bytes, path: bytes = b"/predict") -> bytes:
    lines = [b"POST %s HTTP/1.1" % path, b"host: x", b"content-length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


def answers(client: socket.socket, count: int) -> list[tuple[int, bytes, bytes]]:
    """Read so many answers: status, head, body."""
    received, found = b"", []
    while len(found) < count:
        head, separator, rest = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) if separator else 0
        if separator and len(rest) >= length:
            found.append((int(head[9:12]), head.lower(), rest[:length]))
            received = rest[length:]
            continue
        part = client.recv(65536)
        assert part, received
        received += part
    assert not received
    return found


def test_pipelined_requests_are_answered_in_order_whichever_road_they_take(client: socket.socket) -> None:
    get = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
    client.sendall(
        post(b'{"inputs": "slowword"}') + get + post(b"{") + get + post() + post(path=b"/v2/models/no/infer")
    )
    found = answers(client, 6)
    assert [status for status, _, _ in found] == [200, 200, 400, 200, 200, 404]
    assert b"live" in found[1][2]
    assert LABELS[0].encode() in found[4][2]
    assert all(b"server-timing: " in head and b"date: " in head for _, head, _ in found)


def test_a_long_pipeline_of_refusals_is_no_deep_recursion(client: socket.socket) -> None:
    client.sendall(post(b"{") * 2_000)
    assert {status for status, _, _ in answers(client, 2_000)} == {400}


def test_a_chunked_body_in_pieces(client: socket.socket) -> None:
    client.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for byte in BODY:
        client.sendall(b"1\r\n%c\r\n" % byte)
    client.sendall(b"0\r\n\r\n")
    assert answers(client, 1)[0][0] == 200


def test_a_chunked_body_beyond_the_limit_is_refused_while_it_comes(client: socket.socket) -> None:
    client.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    with pytest.raises(OSError):  # noqa: PT011, PT012 - any error of the socket: the server has closed it
        for _ in range(100):
            client.sendall(b"100000\r\n" + b"a" * 2**20 + b"\r\n")
        raise AssertionError("100 MiB were taken")


def test_a_client_that_waits_for_the_word_gets_it_only_where_its_body_is_wanted(client: socket.socket) -> None:
    head, body = post(BODY, b"expect: 100-continue").split(b"\r\n\r\n")
    client.sendall(head + b"\r\n\r\n")
    assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(body)
    assert answers(client, 1)[0][0] == 200
    client.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n")
    status, head, _ = answers(client, 1)[0]
    assert (status, b"connection: close" in head) == (413, True)
    assert client.recv(100) == b""


def test_http_1_0_hears_no_word_before_the_answer(client: socket.socket) -> None:
    client.sendall(b"POST /predict HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY))
    client.sendall(BODY)
    assert answers(client, 1)[0][0] == 200


def test_a_wish_for_another_protocol_is_not_heard(client: socket.socket) -> None:
    wish = (
        b"connection: Upgrade, HTTP2-Settings",
        b"upgrade: h2c",
        b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    )
    get = b"\r\n".join([b"GET /v2/health/live HTTP/1.1", b"host: x", *wish, b"", b""])
    whole = post(BODY, *wish) + get + post()
    client.sendall(whole[:100])
    client.sendall(whole[100:])
    found = answers(client, 3)
    assert [status for status, _, _ in found] == [200] * 3
    assert b"live" in found[1][2]
    client.sendall(post(BODY, *wish) * 100)
    assert {status for status, _, _ in answers(client, 100)} == {200}
    client.sendall(b"CONNECT /predict HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answers(client, 1)[0][0] == 400


TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"
CONNECT = b"CONNECT /predict HTTP/1.1\r\nhost: x\r\n\r\n"
BROKEN_CHUNK = b'POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"inpZZZ\r\n'


@pytest.mark.parametrize("broken", [TLS_HELLO, b"POST /predict HTTP/9\r\n\r\n", CONNECT, BROKEN_CHUNK])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_what_is_no_http_is_told_so_behind_the_answers_that_are_due(
    client: socket.socket, broken: bytes, before: int
) -> None:
    get = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
    client.sendall(b"".join([post(b'{"inputs": "slowword"}'), get, post()][:before]) + broken + post())
    found = answers(client, before + 1)
    assert [status for status, _, _ in found] == [200] * before + [400]
    _, head, body = found[-1]
    assert json.loads(body)["reason"] == "invalid_http"
    assert b"connection: close" in head
    assert client.recv(100) == b""


@pytest.mark.parametrize("path", [b"/v2/health/live", b"/v2/health/ready", b"/metrics", b"/"])
def test_head_is_get_without_a_body(client: socket.socket, path: bytes) -> None:
    client.sendall(b"HEAD %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path)
    received = b""
    while part := client.recv(65536):
        received += part
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b"\r\n\r\n"), "a body"
    assert b"content-length: 0" not in received


@pytest.mark.parametrize("asked", [b"connection: close", b"connection: keep-alive"])
def test_keep_alive_is_the_clients_choice(client: socket.socket, asked: bytes) -> None:
    client.sendall(post(BODY, asked))
    assert (b"connection: close" in answers(client, 1)[0][1]) == (asked == b"connection: close")
    if asked == b"connection: close":
        assert client.recv(100) == b""
    else:
        client.sendall(post())
        assert answers(client, 1)[0][0] == 200


def test_the_request_id_comes_back_with_errors_too(client: socket.socket) -> None:
    client.sendall(post(b"{", b"x-request-id: an-id"))
    assert b"x-request-id: an-id" in answers(client, 1)[0][1]


def test_a_client_that_reads_nothing_does_not_fill_the_memory(server: Running, client: socket.socket) -> None:
    client.settimeout(2)
    with pytest.raises(TimeoutError):  # noqa: PT012 - at some point the server reads no more
        for _ in range(20_000):
            client.sendall(post(b"{") * 50)
        raise AssertionError("a million requests were taken though no answer was read")
    assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200


def test_what_cannot_be_in_time_is_refused_unread_unless_it_has_wishes_of_its_own(
    server: Running, tmp_path: Path
) -> None:
    with running(write_bundle(tmp_path / "words"), "--threads", "1", "--slo-ms", "0.001") as hurried:
        assert httpx.post(f"{hurried.url}/predict", content=b"{").status_code == 400, "nothing was refused before it"
        assert httpx.post(f"{hurried.url}/predict", json={"inputs": "cat"}).json()["reason"] == "deadline"
        # Not even JSON: had it been read, it would be a 400 again.
        refused = httpx.post(f"{hurried.url}/predict", content=b"{")
        assert (refused.status_code, refused.json()["reason"]) == (503, "deadline")
        assert int(refused.headers["retry-after"]) >= 1
        assert "total;dur=" in refused.headers["server-timing"]
        patient = {"x-breakeven-timeout-ms": "5000"}
        assert httpx.post(f"{hurried.url}/predict", json={"inputs": "cat"}, headers=patient).status_code == 200
        body = {
            "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["cat"]}],
            "parameters": {"timeout": 5_000_000},
        }
        assert httpx.post(f"{hurried.url}/v2/models/words/infer", json=body).status_code == 200
        text = httpx.get(f"{hurried.url}/metrics").text
    assert 'breakeven_shed_total{model="words",reason="deadline"} 2.0' in text
    assert 'breakeven_requests_total{model="words",protocol="hf",status="503"} 2.0' in text
