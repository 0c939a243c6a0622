"""Properties of what the server is made of: layouts, policies, tensors, bodies."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections import deque

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve import layouts
from serve.bodies import decompress
from serve.config import Limits
from serve.errors import InvalidRequest, TooLarge
from serve.jobs import Job, Row
from serve.policies import ByLength, InOrder
from serve.protocols.huggingface import HuggingFace
from serve.protocols.kserve_v1 import KServeV1
from serve.protocols.oip import OpenInference
from serve.protocols.tensors import BinaryData, read_strings, write_strings

ROWS = st.lists(st.lists(st.integers(1, 30_000), min_size=1, max_size=40), min_size=1, max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def rows_of(weights: list[int]) -> deque[Row]:
    job = Job(
        texts=[""] * len(weights),
        ids=None,
        weights=weights,
        num_labels=2,
        arrived_s=0,
        deadline_s=1e9,
        urgent=False,
        on_over=lambda: None,
    )
    return deque(Row(job, index, weight) for index, weight in enumerate(weights))


@given(ROWS)
def test_both_layouts_hold_every_token_once(ids: list[list[int]]) -> None:
    padded = layouts.padded(ids, inputs=("input_ids", "attention_mask", "token_type_ids"), pad_token_id=0)
    packed = layouts.packed(ids)
    flat = [token for row in ids for token in row]
    assert padded["input_ids"][padded["attention_mask"] == 1].tolist() == flat
    assert not padded["input_ids"][padded["attention_mask"] == 0].any()
    assert packed["input_ids"].tolist() == flat
    for number, row in enumerate(ids):
        here = packed["segment_ids"] == number
        assert packed["input_ids"][here].tolist() == row
        assert packed["position_ids"][here].tolist() == list(range(len(row)))
        assert packed["first_token"][number] == np.flatnonzero(here)[0]
    assert all(array.dtype == np.int64 for array in (*padded.values(), *packed.values()))


@given(st.lists(st.integers(1, 64), min_size=1, max_size=100), st.integers(1, 200), st.integers(1, 16))
@pytest.mark.parametrize("kind", [InOrder, ByLength])
def test_policies_serve_every_row_once_within_bounds(
    kind: type[InOrder | ByLength], weights: list[int], budget: int, texts: int
) -> None:
    policy = kind(packed=kind is InOrder, max_texts=texts, max_tokens=budget)
    waiting, served = rows_of(weights), []
    while waiting:
        oldest = waiting[0]
        batch = policy.choose(waiting, max_tokens=budget, max_texts=texts)
        assert batch[0] is oldest  # so nobody waits for ever
        assert len(batch) <= texts
        if len(batch) > 1:
            computed = sum(row.weight for row in batch) if policy.packed else max(r.weight for r in batch) * len(batch)
            assert computed <= budget
        served += batch
    assert sorted(row.index for row in served) == list(range(len(weights)))
    if kind is InOrder:
        assert [row.index for row in served] == list(range(len(weights)))


@given(st.lists(st.text(), max_size=20))
def test_strings_survive_the_binary_form(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    raw = write_strings(texts)
    tensor = {"shape": [len(texts)], "parameters": {"binary_data_size": len(raw)}}
    assert read_strings(tensor, BinaryData(memoryview(raw))) == texts


@given(st.binary(max_size=200))
def test_any_binary_tensor_is_read_or_refused(raw: bytes) -> None:
    tensor = {"shape": [3], "parameters": {"binary_data_size": len(raw)}}
    with contextlib.suppress(InvalidRequest):
        assert len(read_strings(tensor, BinaryData(memoryview(raw)))) == 3


@given(JSON | st.fixed_dictionaries({"inputs": JSON, "instances": JSON, "parameters": JSON, "outputs": JSON}))
@pytest.mark.parametrize("codec", [OpenInference(), HuggingFace(), KServeV1()])
def test_any_json_is_an_ask_or_a_typed_refusal(codec: OpenInference | HuggingFace | KServeV1, document: object) -> None:
    try:
        body = orjson.dumps(document)
    except (TypeError, orjson.JSONEncodeError):  # integers beyond 64 bits
        return
    try:
        ask = codec.decode(body, {}, Limits())
    except (InvalidRequest, TooLarge):
        return
    assert ask.texts or ask.ids


@given(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["text", "input_ids", "attention_mask", "token_type_ids"]),
            "datatype": st.sampled_from(["BYTES", "INT64"]),
            "shape": st.lists(st.integers(-1, 4) | st.booleans() | st.integers(2**31, 2**64), max_size=3) | JSON,
            "data": st.lists(st.integers(-5, 5) | st.text(max_size=3), max_size=8) | JSON,
        }
    ).flatmap(lambda tensor: st.lists(st.just(tensor) | JSON, min_size=1, max_size=3))
)
def test_any_tensors_are_an_ask_or_a_typed_refusal(tensors: list[object]) -> None:
    try:
        body = orjson.dumps({"inputs": tensors})
    except (TypeError, orjson.JSONEncodeError):
        return
    try:
        ask = OpenInference().decode(body, {}, Limits())
    except (InvalidRequest, TooLarge):
        return
    assert ask.texts or ask.ids


@given(st.binary(max_size=500))
def test_compressed_bodies_come_back_whole(body: bytes) -> None:
    raw = zlib.compressobj(wbits=-15)
    assert decompress(gzip.compress(body), b"gzip", most_bytes=1000) == body
    assert decompress(zlib.compress(body), b"deflate", most_bytes=1000) == body
    assert decompress(body, b"identity", most_bytes=1000) == body
    assert decompress(raw.compress(body) + raw.flush(), b"deflate", most_bytes=1000) == body


@given(st.binary(max_size=100), st.sampled_from([b"gzip", b"deflate"]))
def test_any_compressed_bytes_are_read_or_refused(body: bytes, encoding: bytes) -> None:
    with contextlib.suppress(InvalidRequest, TooLarge):
        assert len(decompress(body, encoding, most_bytes=1000)) <= 1000


def test_a_bomb_is_never_unpacked() -> None:
    bomb = gzip.compress(b"0" * 2**26)
    with pytest.raises(TooLarge):
        decompress(bomb, b"gzip", most_bytes=2**16)
