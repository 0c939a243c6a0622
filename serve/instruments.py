"""Every metric that the server exposes: all names stand here and nowhere else.

With several workers prometheus_client keeps each worker's values in files of one folder (PROMETHEUS_MULTIPROC_DIR),
so that any worker's ``/metrics`` tells the sum over all, dead ones included.
"""

from __future__ import annotations

import functools
import os
from bisect import bisect_left

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from testbed.meter import Meter

SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
PARTS = ("queue", "tokenize", "batch", "compute", "serialise")

REGISTRY = CollectorRegistry()


class SharedHistogram(Histogram):
    """A histogram that counts a value for several requests at once: those of a batch have its parts in common."""

    def add(self, amount: float, *, times: int = 1) -> None:
        """Observe ``amount`` so many times."""
        self._sum.inc(amount * times)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(times)


requests = Counter(
    "breakeven_requests", "Answered inference requests.", ("model", "protocol", "status"), registry=REGISTRY
)
texts = Counter("breakeven_texts", "Texts of requests that got a result.", ("model",), registry=REGISTRY)
shed = Counter("breakeven_shed", "Requests refused on purpose, by reason.", ("model", "reason"), registry=REGISTRY)
departed = Counter("breakeven_departed", "Requests whose client left before the answer.", ("model",), registry=REGISTRY)
errors = Counter("breakeven_errors", "Requests that failed, by reason.", ("model", "reason"), registry=REGISTRY)
part_seconds = SharedHistogram(
    "breakeven_part_seconds",
    "Seconds of a request by part.",
    ("model", "part"),
    buckets=SECONDS,
    registry=REGISTRY,
)
request_seconds = SharedHistogram(
    "breakeven_request_seconds", "From arrival to the finished body.", ("model",), buckets=SECONDS, registry=REGISTRY
)
batches = Counter("breakeven_batches", "Batches that were run.", ("model",), registry=REGISTRY)
batch_texts = SharedHistogram(
    "breakeven_batch_texts", "Texts in a batch.", ("model",), buckets=COUNTS, registry=REGISTRY
)
batch_tokens = SharedHistogram(
    "breakeven_batch_tokens", "Tokens in a batch, padding left out.", ("model",), buckets=TOKENS, registry=REGISTRY
)
computed_tokens = Counter(
    "breakeven_computed_tokens",
    "Tokens that were computed, by kind: real or padding.",
    ("model", "kind"),
    registry=REGISTRY,
)
compute_seconds = Counter("breakeven_compute_seconds", "Seconds inside ONNX Runtime.", ("model",), registry=REGISTRY)
in_flight = Gauge(
    "breakeven_in_flight",
    "Requests admitted and not answered.",
    ("model",),
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
waiting_tokens = Gauge(
    "breakeven_waiting_tokens", "Tokens in the queue.", ("model",), registry=REGISTRY, multiprocess_mode="livesum"
)
batch_drift = Gauge(
    "breakeven_batch_drift",
    "Observed over predicted batch seconds.",
    ("model",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
model_info = Gauge(
    "breakeven_model_info",
    "What is served; always 1.",
    ("model", "version", "variant", "precision", "profile", "policy"),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)
resident_bytes = Gauge(
    "breakeven_resident_bytes", "Resident set of the workers.", registry=REGISTRY, multiprocess_mode="livesum"
)
energy_joules = Gauge(
    "breakeven_energy_joules",
    "Joules of the whole machine since this worker's start, by counter; absent where the machine has none.",
    ("counter",),
    registry=REGISTRY,
    multiprocess_mode="livemax",
)

# Opened at the first use of the metrics: the worker's start.
since_start = Meter().begin()


@functools.cache
def _answered(model: str, protocol: str, status: int) -> Counter:
    return requests.labels(model, protocol, str(status))


def count_request(model: str, protocol: str, status: int) -> None:
    """Count one answered inference request; ``model`` is empty where the request named none that we have."""
    _answered(model, protocol, status).inc()


def note_memory() -> None:
    """Bring the gauge of this worker's memory up to date."""
    resident_bytes.set(psutil.Process().memory_info().rss)


def exposition() -> bytes:
    """Return all metrics of all workers in the Prometheus text format."""
    note_memory()
    energy = since_start.end().energy
    if energy.energy_j is not None:
        energy_joules.labels(str(energy.method)).set(energy.energy_j)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    merged = CollectorRegistry()
    MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
    return generate_latest(merged)
