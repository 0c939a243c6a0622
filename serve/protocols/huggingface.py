"""The Hugging Face inference form: ``{"inputs": …, "parameters": {…}}`` to a nested list of labels with scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import orjson

from serve.card import Card
from serve.config import Limits
from serve.errors import InvalidRequest
from serve.jobs import Floats, Job
from serve.protocols.codec import Ask, Headers, Reply, check_texts, parameters_of, parse_object, whole_number

FUNCTIONS = ("softmax", "sigmoid", "none")


class Shown(NamedTuple):
    """What the answer is to show: ``top_k`` labels (None = all) by ``function`` of the logits."""

    top_k: int | None
    function: str


class HuggingFace:
    """``POST /`` and ``POST /predict``."""

    name = "hf"

    def decode(self, body: bytes, headers: Headers, limits: Limits) -> Ask:  # noqa: ARG002 - the Codec's form
        """Return the texts: ``inputs`` is a string, a list of strings, or ``{"text": …}``."""
        document = parse_object(body)
        inputs = document.get("inputs")
        if isinstance(inputs, dict):
            inputs = inputs.get("text")
        texts = inputs if isinstance(inputs, list) else [inputs]
        if inputs is None:
            raise InvalidRequest('no inputs; help: send {"inputs": "a text"}')
        parameters = parameters_of(document)
        return Ask(texts=check_texts(texts, limits), options=Shown(_top_k(parameters), _function(parameters)))

    def encode(self, ask: Ask, job: Job, card: Card) -> Reply:
        """Return one list of labels a text, best first."""
        shown: Shown = ask.options
        scores = _scores(job, shown.function)
        answer = []
        for row, order in zip(scores.tolist(), np.argsort(-scores, axis=1)[:, : shown.top_k].tolist(), strict=True):
            answer.append([{"label": card.labels[label], "score": row[label]} for label in order])
        return Reply(orjson.dumps(answer))


def _scores(job: Job, function: str) -> Floats:
    if function == "softmax":
        return job.probabilities
    if function == "sigmoid":
        # Beyond ±88 a float32 exponential overflows; the sigmoid is 0 or 1 there to the last bit.
        bounded: Floats = np.float32(1) / (np.float32(1) + np.exp(-np.clip(job.logits, -88, 88)))
        return bounded
    return job.logits


def _top_k(parameters: dict[str, Any]) -> int | None:
    if parameters.get("top_k") is None:
        return None
    top_k = whole_number(parameters["top_k"])
    if top_k is None or top_k < 1:
        msg = f"top_k is {parameters['top_k']!r}, a whole number from 1 is needed"
        raise InvalidRequest(msg)
    return top_k


def _function(parameters: dict[str, Any]) -> str:
    function = parameters.get("function_to_apply")
    if function is None:
        return "softmax"
    if function not in FUNCTIONS:
        msg = f"function_to_apply is {function!r}; help: one of {', '.join(FUNCTIONS)}"
        raise InvalidRequest(msg)
    return str(function)
