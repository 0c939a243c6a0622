"""Model statistics in the form that Triton's clients read, from the metrics: one truth over all workers."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from serve import instruments
from serve.card import Card


def statistics_of(card: Card) -> dict[str, Any]:
    """Return counts and nanoseconds since the start, summed over the workers and the model's versions."""
    figures = _figures(card.name)

    def duration(part: str) -> dict[str, int]:
        return {
            "count": int(figures.get(f"part_seconds_count.{part}", 0)),
            "ns": int(figures.get(f"part_seconds_sum.{part}", 0) * 1e9),
        }

    answered = int(figures.get("request_seconds_count", 0))
    failed = int(figures.get("errors_total", 0))
    return {
        "name": card.name,
        "version": card.version,
        "inference_count": int(figures.get("texts_total", 0)),
        "execution_count": int(figures.get("batches_total", 0)),
        "inference_stats": {
            "success": {"count": answered, "ns": int(figures.get("request_seconds_sum", 0) * 1e9)},
            "fail": {"count": failed, "ns": 0},
            "queue": duration("queue"),
            "compute_input": duration("tokenize"),
            "compute_infer": duration("compute"),
            "compute_output": duration("serialise"),
        },
        "batch_stats": [],
    }


def _figures(model: str) -> dict[str, float]:
    """Return the sums of one model's samples, by name without its prefix, ``.part`` appended where there is one."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(instruments.exposition().decode()):
        for sample in family.samples:
            if sample.labels.get("model") != model or "le" in sample.labels:
                continue
            part = sample.labels.get("part")
            name = sample.name.removeprefix("breakeven_") + (f".{part}" if part else "")
            found[name] = found.get(name, 0.0) + sample.value
    return found
