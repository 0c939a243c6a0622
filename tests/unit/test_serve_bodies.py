"""Bodies: what is compressed, and what is refused."""

from __future__ import annotations

import gzip

import orjson
import pytest

from serve.bodies import compress, decompress
from serve.errors import InvalidRequest
from serve.protocols.codec import parse_object

LONG = b"a long answer " * 1000


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        (b"gzip, deflate", b"gzip"),
        (b"GZIP;q=0.5", b"gzip"),
        (b"gzip; q=1", b"gzip"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip; q = 0.000", None),
        (b"identity", None),
        (b"", None),
    ],
)
def test_an_answer_is_compressed_as_the_client_accepts(accepted: bytes, encoding: bytes | None) -> None:
    body, found = compress(LONG, accepted)
    assert found == encoding
    assert (decompress(body, found, most_bytes=len(LONG)) if found else body) == LONG


def test_what_follows_a_compressed_body_is_refused_not_dropped() -> None:
    with pytest.raises(InvalidRequest, match="one stream"):
        decompress(gzip.compress(b"first") + gzip.compress(b"second"), b"gzip", most_bytes=1000)


def test_want_of_memory_for_a_body_is_not_the_clients_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(_body: bytes) -> None:
        raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)

    monkeypatch.setattr(orjson, "loads", loads)
    with pytest.raises(MemoryError):
        parse_object(b"{}")
