"""Tensors of the Open Inference Protocol, as JSON and in its binary extension."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serve.errors import InvalidRequest

MATRIX = 2
LENGTH = struct.Struct("<I")
# No request has as many elements; numpy fails on sizes beyond 64 bits, even beside a zero.
BEYOND_SIZE = 2**31


class BinaryData:
    """The bytes behind the JSON head: each tensor with a ``binary_data_size`` takes the next ones, in order.

    Args:
        data: everything behind the head; empty where the request is JSON alone.
    """

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._used = 0

    def take(self, size: object, name: str) -> memoryview:
        """Return the next ``size`` bytes; raises InvalidRequest where there are not as many."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 0 or self._used + size > len(self._data):
            msg = f"tensor {name!r}: binary_data_size {size!r}, {len(self._data) - self._used} bytes are left"
            raise InvalidRequest(msg)
        begin, self._used = self._used, self._used + size
        return self._data[begin : self._used]

    def check_used_up(self) -> None:
        """Raise InvalidRequest where bytes are left that no tensor claims."""
        if self._used != len(self._data):
            msg = f"{len(self._data) - self._used} bytes behind the last tensor"
            raise InvalidRequest(msg)


def shape_of(tensor: dict[str, Any], name: str) -> list[int]:
    """Return a tensor's shape; raises InvalidRequest unless it is a list of one or two whole numbers."""
    shape = tensor.get("shape")
    if isinstance(shape, list) and 1 <= len(shape) <= MATRIX:
        for size in shape:
            if type(size) is not int or not 0 <= size < BEYOND_SIZE:  # a bool is an int to isinstance
                break
        else:
            return shape
    msg = f"tensor {name!r}: shape {shape!r}, a list of one or two sizes is needed"
    raise InvalidRequest(msg)


def read_strings(tensor: dict[str, Any], binary: BinaryData) -> list[Any]:
    """Return the elements of a BYTES tensor of shape [N] or [N, 1]; raises InvalidRequest."""
    shape = shape_of(tensor, "text")
    if len(shape) == MATRIX and shape[1] != 1:
        msg = f"tensor 'text': shape {shape}, [N] or [N, 1] is needed"
        raise InvalidRequest(msg)
    size = (tensor.get("parameters") or {}).get("binary_data_size")
    elements = _flatten(tensor.get("data")) if size is None else _strings(binary.take(size, "text"))
    if len(elements) != math.prod(shape):
        msg = f"tensor 'text': {len(elements)} elements, the shape {shape} says {math.prod(shape)}"
        raise InvalidRequest(msg)
    return elements


def read_integers(tensor: dict[str, Any], name: str, binary: BinaryData) -> NDArray[np.int64]:
    """Return an INT64 tensor of two dimensions; raises InvalidRequest."""
    shape = shape_of(tensor, name)
    if len(shape) != MATRIX:
        msg = f"tensor {name!r}: shape {list(shape)}, [texts, length] is needed"
        raise InvalidRequest(msg)
    size = (tensor.get("parameters") or {}).get("binary_data_size")
    if size is None:
        elements = _flatten(tensor.get("data"))
        if not all(type(element) is int and -(2**63) <= element < 2**63 for element in elements):
            msg = f"tensor {name!r}: whole numbers of 64 bits are needed"
            raise InvalidRequest(msg)
        values = np.array(elements, dtype=np.int64)
    else:
        raw = binary.take(size, name)
        if len(raw) % 8:
            msg = f"tensor {name!r}: {len(raw)} bytes are no whole number of INT64"
            raise InvalidRequest(msg)
        values = np.frombuffer(raw, dtype="<i8").astype(np.int64)
    if values.size != math.prod(shape):
        msg = f"tensor {name!r}: {values.size} elements, the shape {shape} says {math.prod(shape)}"
        raise InvalidRequest(msg)
    return values.reshape(shape)


def write_strings(elements: Sequence[str]) -> bytes:
    """Return BYTES elements in the binary form: a little-endian uint32 length before each."""
    encoded = [element.encode() for element in elements]
    return b"".join(LENGTH.pack(len(element)) + element for element in encoded)


def _strings(raw: memoryview) -> list[str]:
    found, used = [], 0
    while used < len(raw):
        if used + LENGTH.size > len(raw):
            raise InvalidRequest("tensor 'text': cut off inside an element's length")
        (size,) = LENGTH.unpack_from(raw, used)
        used += LENGTH.size
        if used + size > len(raw):
            raise InvalidRequest("tensor 'text': cut off inside an element")
        try:
            found.append(str(raw[used : used + size], "utf-8"))
        except UnicodeDecodeError as error:
            msg = f"tensor 'text': element {len(found)} is not UTF-8 ({error.reason})"
            raise InvalidRequest(msg) from None
        used += size
    return found


def _flatten(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise InvalidRequest('tensor without data; help: a list under "data", or a binary_data_size')
    found: list[Any] = []
    for element in data:
        if isinstance(element, list):
            found += element
        else:
            found.append(element)
    return found
