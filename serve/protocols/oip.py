"""The Open Inference Protocol v2 (KServe, Triton): JSON and the binary extension, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from serve.card import Card
from serve.config import Limits
from serve.errors import InvalidRequest
from serve.jobs import Floats, Job
from serve.protocols.codec import (
    Ask,
    Headers,
    Reply,
    check_rows,
    check_texts,
    parameters_of,
    parse_object,
    positive_number,
    whole_number,
)
from serve.protocols.tensors import BinaryData, read_integers, read_strings, write_strings

HEAD_LENGTH = b"inference-header-content-length"
INPUTS = {"text": "BYTES", "input_ids": "INT64", "attention_mask": "INT64", "token_type_ids": "INT64"}
OUTPUTS = ("label", "probabilities", "logits")
NO_DATA = BinaryData(memoryview(b""))
NO_INPUTS = "no inputs; help: a list of tensors, such as text of datatype BYTES"
MOST_DIGITS = 12
OCTETS = b"application/octet-stream"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One output that the client wants: its name, binary or not, and how many classes (0 = the plain tensor)."""

    name: str
    binary: bool = False
    classes: int = 0


EVERYTHING = tuple(Wanted(name) for name in OUTPUTS)
EVERYTHING_BINARY = tuple(Wanted(name, binary=True) for name in OUTPUTS)


class OpenInference:
    """``POST /v2/models/M[/versions/V]/infer``."""

    name = "oip"

    def decode(self, body: bytes, headers: Headers, limits: Limits) -> Ask:
        """Return the texts of the BYTES tensor ``text``, or the rows of ``input_ids`` and ``attention_mask``."""
        head_length = headers.get(HEAD_LENGTH)
        head, binary = (body, NO_DATA) if head_length is None else _split(body, head_length)
        document = parse_object(head)
        parameters = parameters_of(document)
        tensors = _tensors(document)
        texts: list[str] | None = None
        ids: list[list[int]] | None = None
        if "text" in tensors:
            if len(tensors) > 1:
                raise InvalidRequest("send either text or input_ids, not both")
            texts = check_texts(read_strings(tensors["text"], binary), limits)
        else:
            ids = _token_rows(tensors, binary, limits)
        binary.check_used_up()
        timeout = parameters.get("timeout")
        request_id = document.get("id")
        return Ask(
            texts=texts,
            ids=ids,
            # Triton's parameter is in microseconds; its priority 1 is the highest, 0 the default.
            timeout_s=None if timeout in (None, 0) else positive_number(timeout, "timeout") / 1e6,
            urgent=parameters.get("priority") == 1,
            request_id=None if request_id is None else str(request_id),
            options=_wanted(document, parameters),
        )

    def encode(self, ask: Ask, job: Job, card: Card) -> Reply:
        """Return the wanted outputs, in the order in which they were asked for."""
        tail: list[bytes] = []
        document: dict[str, Any] = {"model_name": card.name, "model_version": card.version}
        if ask.request_id is not None:
            document["id"] = ask.request_id
        document["outputs"] = [_output(wanted, job, card, tail) for wanted in ask.options]
        head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        if not tail:
            return Reply(head)
        return Reply(b"".join([head, *tail]), OCTETS, [(HEAD_LENGTH, str(len(head)).encode())])


def _split(body: bytes, head_length: bytes) -> tuple[bytes | memoryview, BinaryData]:
    if not head_length.isdigit() or len(head_length) > MOST_DIGITS or int(head_length) > len(body):
        msg = f"Inference-Header-Content-Length does not fit a body of {len(body)} bytes"
        raise InvalidRequest(msg)
    view = memoryview(body)
    return view[: int(head_length)], BinaryData(view[int(head_length) :])


def _tensors(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    inputs = document.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise InvalidRequest(NO_INPUTS)
    found: dict[str, dict[str, Any]] = {}
    for tensor in inputs:
        if not isinstance(tensor, dict):
            raise InvalidRequest(NO_INPUTS)
        name = tensor.get("name")
        if not isinstance(name, str) or name not in INPUTS:
            msg = f"no input {name!r}; help: text, or input_ids and attention_mask"
            raise InvalidRequest(msg)
        expected = INPUTS[name]
        if tensor.get("datatype") != expected:
            msg = f"input {name!r} has datatype {tensor.get('datatype')!r}, {expected} is needed"
            raise InvalidRequest(msg)
        parameters_of(tensor)
        if name in found:
            msg = f"input {name!r} was sent twice"
            raise InvalidRequest(msg)
        found[name] = tensor
    return found


def _token_rows(tensors: dict[str, dict[str, Any]], binary: BinaryData, limits: Limits) -> list[list[int]]:
    arrays = {name: read_integers(tensor, name, binary) for name, tensor in tensors.items()}
    if "input_ids" not in arrays:
        raise InvalidRequest("no input; help: text, or input_ids and attention_mask")
    input_ids = arrays["input_ids"]
    mask = arrays.get("attention_mask", np.ones_like(input_ids))
    if any(array.shape != input_ids.shape for array in arrays.values()):
        raise InvalidRequest("input_ids and attention_mask have different shapes")
    if arrays.get("token_type_ids", mask[:0]).any():
        raise InvalidRequest("token_type_ids other than 0 are not supported; help: leave them out")
    check_rows(len(input_ids), limits)
    lengths = mask.sum(axis=1)
    if not len(lengths) or lengths.min() < 1 or not np.array_equal(mask, np.arange(mask.shape[1]) < lengths[:, None]):
        raise InvalidRequest("attention_mask: each row is ones, at least one, and then zeros")
    return [row[:length].tolist() for row, length in zip(input_ids, lengths.tolist(), strict=True)]


def _wanted(document: dict[str, Any], parameters: dict[str, Any]) -> tuple[Wanted, ...]:
    everything_binary = parameters.get("binary_data_output") is True
    outputs = document.get("outputs")
    if not outputs:
        return EVERYTHING_BINARY if everything_binary else EVERYTHING
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise InvalidRequest("outputs is not a list of objects")
    wanted: dict[str, Wanted] = {}
    for output in outputs:
        one = _one_wanted(output, everything_binary)
        if one.name in wanted:  # thousands of times one output would be an answer of gigabytes
            msg = f"output {one.name!r} was asked for twice"
            raise InvalidRequest(msg)
        wanted[one.name] = one
    return tuple(wanted.values())


def _one_wanted(output: dict[str, Any], binary: bool) -> Wanted:
    name, parameters = output.get("name"), parameters_of(output)
    asked = parameters.get("classification", 0)
    classes = whole_number(asked)
    if name not in OUTPUTS:
        msg = f"no output {name!r}; help: one of {', '.join(OUTPUTS)}"
        raise InvalidRequest(msg)
    if classes is None or classes < 0 or (classes and name == "label"):
        msg = f"output {name!r}: classification {asked!r}; help: a whole number, on probabilities or logits"
        raise InvalidRequest(msg)
    return Wanted(str(name), binary=parameters.get("binary_data", binary) is True, classes=classes)


def _output(wanted: Wanted, job: Job, card: Card, tail: list[bytes]) -> dict[str, Any]:
    if wanted.name != "label" and not wanted.classes:
        values = job.probabilities if wanted.name == "probabilities" else job.logits
        described: dict[str, Any] = {"name": wanted.name, "datatype": "FP32", "shape": list(values.shape)}
        if wanted.binary:
            raw = values.astype("<f4", copy=False).tobytes()
        else:
            described["data"] = values.ravel()
            return described
    else:
        strings, shape = _strings(wanted, job, card)
        described = {"name": wanted.name, "datatype": "BYTES", "shape": shape}
        if wanted.binary:
            raw = write_strings(strings)
        else:
            described["data"] = strings
            return described
    tail.append(raw)
    described["parameters"] = {"binary_data_size": len(raw)}
    return described


def _strings(wanted: Wanted, job: Job, card: Card) -> tuple[list[str], list[int]]:
    if not wanted.classes:
        return [card.labels[label] for label in job.labels], [len(job.labels)]
    values: Floats = job.probabilities if wanted.name == "probabilities" else job.logits
    count = min(wanted.classes, len(card.labels))
    order = np.argsort(-values, axis=1)[:, :count].tolist()
    strings = [f"{row[k]:f}:{k}:{card.labels[k]}" for row, ks in zip(values.tolist(), order, strict=True) for k in ks]
    return strings, [len(values), count]
