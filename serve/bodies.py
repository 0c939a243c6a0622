"""Bodies: the limit on their announced length, and their Content-Encoding undone without ever holding a bomb."""

from __future__ import annotations

import gzip
import re
import zlib

from serve.errors import InvalidRequest, TooLarge, UnsupportedEncoding
from serve.protocols.codec import Headers

# zlib's window bits: a gzip header is expected at +16; deflate is a zlib stream, or, from some clients, a raw one.
GZIP = 16 + zlib.MAX_WBITS
ZLIB_HEAD = b"\x78\x9c"
# A weight that forbids an encoding (RFC 9110, 12.4.2).
FORBIDDEN = re.compile(rb"\s*q\s*=\s*0(\.0*)?\s*")
# Small answers gain nothing from compression.
COMPRESS_FROM_BYTES = 4096
COMPRESSION_LEVEL = 1
# No limit has more; and int() of a very long number is slow.
MOST_DIGITS = 12


def check_announced(headers: Headers, *, most_bytes: int) -> None:
    """Look at the length that a body is announced to have, before any of it is read.

    Raises:
        TooLarge: more than ``most_bytes``.
        InvalidRequest: a Content-Length that is no number.
    """
    announced = headers.get(b"content-length")
    if announced is None:
        return
    if not announced.isdigit():
        raise InvalidRequest("Content-Length is not a number")
    if len(announced) > MOST_DIGITS or int(announced) > most_bytes:
        raise too_large(most_bytes)


def decompress(body: bytes, encoding: bytes, *, most_bytes: int) -> bytes:
    """Return the body behind a Content-Encoding; never makes more than ``most_bytes`` + 1 bytes of it."""
    name = encoding.strip().lower()
    if name in {b"", b"identity"}:
        return body
    if name not in {b"gzip", b"x-gzip", b"deflate"}:
        msg = f"Content-Encoding {encoding.decode('latin-1')!r}; help: gzip, deflate or none"
        raise UnsupportedEncoding(msg)
    raw_deflate = name == b"deflate" and not _looks_like_zlib(body)
    window = -zlib.MAX_WBITS if raw_deflate else zlib.MAX_WBITS if name == b"deflate" else GZIP
    inflater = zlib.decompressobj(window)
    try:
        found = inflater.decompress(body, most_bytes + 1)
    except zlib.error as error:
        msg = f"the body is not {name.decode()}: {error}"
        raise InvalidRequest(msg) from None
    if len(found) > most_bytes:
        raise too_large(most_bytes)
    if not inflater.eof:
        raise InvalidRequest("the compressed body is cut off")
    if inflater.unused_data:
        raise InvalidRequest("bytes follow the end of the compressed body; help: compress it as one stream")
    return found


def compress(body: bytes, accepted: bytes) -> tuple[bytes, bytes | None]:
    """Return the body and its Content-Encoding (None = as it was), by what ``Accept-Encoding`` names."""
    if len(body) < COMPRESS_FROM_BYTES:
        return body, None
    if _accepts(accepted, b"gzip"):
        return gzip.compress(body, COMPRESSION_LEVEL), b"gzip"
    if _accepts(accepted, b"deflate"):
        return zlib.compress(body, COMPRESSION_LEVEL), b"deflate"
    return body, None


def _accepts(accepted: bytes, encoding: bytes) -> bool:
    for choice in accepted.lower().split(b","):
        name, _, quality = choice.partition(b";")
        if name.strip() == encoding:
            return FORBIDDEN.fullmatch(quality) is None
    return False


def too_large(most_bytes: int) -> TooLarge:
    """Return the error of a body beyond the limit."""
    return TooLarge(f"the body has more than {most_bytes} bytes; help: send fewer texts in one request")


def _looks_like_zlib(body: bytes) -> bool:
    # RFC 1950: method 8 in the low bits of the first byte, and the first two bytes a multiple of 31.
    head = body[: len(ZLIB_HEAD)]
    return len(head) == len(ZLIB_HEAD) and head[0] & 0x0F == ZLIB_HEAD[0] & 0x0F and int.from_bytes(head) % 31 == 0
