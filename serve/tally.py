"""The metrics of one model, their label children looked up once: the hot path only adds."""

from __future__ import annotations

from prometheus_client import Counter

from serve import instruments
from serve.jobs import BatchTimes, Job


class Tally:
    """Counts what happens to one model.

    Args:
        model: its name.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._shed: dict[str, Counter] = {}
        self._errors: dict[str, Counter] = {}
        self._left = instruments.departed.labels(model)
        self._parts = {part: instruments.part_seconds.labels(model, part) for part in instruments.PARTS}
        self._total = instruments.request_seconds.labels(model)
        self._texts = instruments.texts.labels(model)
        self._batches = instruments.batches.labels(model)
        self._batch_texts = instruments.batch_texts.labels(model)
        self._batch_tokens = instruments.batch_tokens.labels(model)
        self._real = instruments.computed_tokens.labels(model, "real")
        self._padding = instruments.computed_tokens.labels(model, "padding")
        self._compute = instruments.compute_seconds.labels(model)
        self.in_flight = instruments.in_flight.labels(model)
        self.waiting_tokens = instruments.waiting_tokens.labels(model)
        self.drift = instruments.batch_drift.labels(model)

    def batch(self, *, texts: int, tokens: int, computed: int, compute_s: float) -> None:
        """Count one batch; ``computed`` tokens are those of the graph's inputs, padding included."""
        self._batches.inc()
        self._batch_texts.add(texts)
        self._batch_tokens.add(tokens)
        self._real.inc(tokens)
        self._padding.inc(computed - tokens)
        self._compute.inc(compute_s)

    def answered(self, job: Job, *, total_s: float) -> None:
        """Count a request that got its result, but for what it shares with others: ``batch_answered`` counts that."""
        self._parts["queue"].add(job.queue_s)
        self._parts["serialise"].add(job.serialise_s)
        self._total.add(total_s)

    def batch_answered(self, times: BatchTimes, *, requests: int, texts: int) -> None:
        """Count the parts of a batch for so many requests that it ended, and all of their texts."""
        self._texts.inc(texts)
        self._parts["tokenize"].add(times.tokenize_s, times=requests)
        self._parts["batch"].add(times.batch_s, times=requests)
        self._parts["compute"].add(times.compute_s, times=requests)

    def shed(self, reason: str) -> None:
        """Count a request that was refused on purpose."""
        _child(self._shed, instruments.shed, self._model, reason).inc()

    def failed(self, reason: str) -> None:
        """Count a request that failed."""
        _child(self._errors, instruments.errors, self._model, reason).inc()

    def left(self) -> None:
        """Count a request whose client left."""
        self._left.inc()


def _child(known: dict[str, Counter], metric: Counter, model: str, reason: str) -> Counter:
    """Return a metric's child by reason: looking it up costs several times what counting does."""
    if reason not in known:
        known[reason] = metric.labels(model, reason)
    return known[reason]
