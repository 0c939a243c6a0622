"""KServe's first protocol: ``POST /v1/models/M:predict`` with ``{"instances": […]}`` to ``{"predictions": […]}``."""

from __future__ import annotations

import orjson

from serve.card import Card
from serve.config import Limits
from serve.errors import InvalidRequest
from serve.jobs import Job
from serve.protocols.codec import Ask, Headers, Reply, check_texts, parse_object


class KServeV1:
    """An instance is a string or ``{"text": …}``; a prediction is its label, score and all probabilities."""

    name = "v1"

    def decode(self, body: bytes, headers: Headers, limits: Limits) -> Ask:  # noqa: ARG002 - the Codec's form
        """Return the texts of ``instances``."""
        instances = parse_object(body).get("instances")
        if not isinstance(instances, list):
            raise InvalidRequest('no list of instances; help: send {"instances": ["a text"]}')
        return Ask(texts=check_texts([_text(instance) for instance in instances], limits))

    def encode(self, ask: Ask, job: Job, card: Card) -> Reply:  # noqa: ARG002 - the Codec's form
        """Return one prediction an instance."""
        predictions = [
            {
                "label": card.labels[label],
                "score": scores[label],
                "probabilities": dict(zip(card.labels, scores, strict=True)),
            }
            for label, scores in zip(job.labels, job.probabilities.tolist(), strict=True)
        ]
        return Reply(orjson.dumps({"predictions": predictions}))


def _text(instance: object) -> object:
    return instance.get("text") if isinstance(instance, dict) else instance
