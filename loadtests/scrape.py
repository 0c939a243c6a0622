"""What a server says of itself: readiness, proof of execution, and the counters of ``/metrics``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from testbed.records import Proof

Labels = frozenset[tuple[str, str]]
READ_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Counters:
    """All samples of one reading of ``/metrics``, by name and labels."""

    samples: Mapping[tuple[str, Labels], float]

    def total(self, name: str, **labels: str) -> float | None:
        """Return the sum of a metric's samples with these labels, or None where there is none."""
        wanted = set(labels.items())
        found = [value for (sample, has), value in self.samples.items() if sample == name and wanted <= has]
        return sum(found) if found else None

    def since(self, before: Counters, name: str, **labels: str) -> float | None:
        """Return how much a counter grew; one that first appeared in between began at 0."""
        now = self.total(name, **labels)
        return None if now is None else now - (before.total(name, **labels) or 0.0)

    def by_label(self, before: Counters, name: str, label: str) -> dict[str, float]:
        """Return how much a counter grew, by the values of one label."""
        grown: dict[str, float] = {}
        for (sample, has), value in self.samples.items():
            key = dict(has).get(label)
            if sample == name and key is not None:
                grown[key] = grown.get(key, 0.0) + value - before.samples.get((sample, has), 0.0)
        return grown


def read_counters(url: str) -> Counters | None:
    """Return the counters of a server, or None where it shows none."""
    try:
        answer = httpx.get(f"{url}/metrics", timeout=READ_TIMEOUT_S)
        answer.raise_for_status()
        families = list(text_string_to_metric_families(answer.text))
    except (httpx.HTTPError, ValueError):
        return None
    samples = {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in families
        for sample in family.samples
    }
    return Counters(samples)


def read_proof(url: str, model: str) -> Proof | None:
    """Return what the server reports of its own execution, or None where it reports nothing."""
    try:
        answer = httpx.get(f"{url}/v2/models/{model}", timeout=READ_TIMEOUT_S)
        answer.raise_for_status()
        told = answer.json().get("proof", {})
        return Proof.model_validate({name: told[name] for name in Proof.model_fields if name in told})
    except (httpx.HTTPError, ValueError, AttributeError, ValidationError):
        return None


def is_ready(url: str) -> bool:
    """Tell whether this URL of a server is answered with 200."""
    try:
        return httpx.get(url, timeout=READ_TIMEOUT_S).is_success
    except httpx.HTTPError:
        return False
