"""OpenTelemetry traces: one span a request, its parts as children. Not even imported without an endpoint."""

from __future__ import annotations

import logging
import os
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serve.jobs import BatchTimes, Job
from serve.protocols.codec import Headers

logger = logging.getLogger(__name__)

TRACE_HEADERS = ("traceparent", "tracestate")
# A collector that does not answer must not keep a server from ending; OTEL_EXPORTER_OTLP_TIMEOUT says otherwise.
EXPORT_S = 2.0
FIRST_SERVER_ERROR = 500


class Traces:
    """Makes spans and sends them, in batches and on a thread of its own, to ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Sampling, headers and the service's name follow OpenTelemetry's own variables.
    """

    def __init__(self) -> None:
        name = os.environ.get("OTEL_SERVICE_NAME", "breakeven")
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        timeout_s = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_S
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=timeout_s)))
        self._tracer = self._provider.get_tracer("breakeven.serve")
        self._propagator = TraceContextTextMapPropagator()

    def record(
        self, *, model: str, protocol: str, headers: Headers, status: int, seconds: float, job: Job | None
    ) -> None:
        """Record a request that has just been answered.

        Args:
            model: its name; empty where the request named none that is served.
            protocol: the codec's name.
            headers: with the W3C trace context of the client, if it sent one.
            status: of the answer.
            seconds: from its arrival until now.
            job: where its time went; None where it was refused.
        """
        end_ns = time.time_ns()
        begin_ns = end_ns - int(seconds * 1e9)
        carrier = {name: headers[name.encode()].decode("latin-1") for name in TRACE_HEADERS if name.encode() in headers}
        span = self._tracer.start_span(
            f"infer {model}".rstrip(),
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=begin_ns,
            attributes={
                "http.request.method": "POST",
                "http.response.status_code": status,
                "breakeven.model": model,
                "breakeven.protocol": protocol,
                "breakeven.texts": len(job.labels) if job else 0,
            },
        )
        if status >= FIRST_SERVER_ERROR:
            span.set_status(Status(StatusCode.ERROR))
        if job is not None and job.batch is not None and span.is_recording():
            self._record_parts(span, job, job.batch, begin_ns, end_ns)
        span.end(end_ns)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _record_parts(self, span: Span, job: Job, batch: BatchTimes, begin_ns: int, end_ns: int) -> None:
        context, at_ns = set_span_in_context(span), begin_ns
        parts = (
            ("queue", job.queue_s),
            ("tokenize", batch.tokenize_s),
            ("batch", batch.batch_s),
            ("compute", batch.compute_s),
        )
        for part, seconds in parts:
            ends_ns = at_ns + int(seconds * 1e9)
            self._tracer.start_span(part, context=context, start_time=at_ns).end(ends_ns)
            at_ns = ends_ns
        serialise_ns = end_ns - int(job.serialise_s * 1e9)
        self._tracer.start_span("serialise", context=context, start_time=serialise_ns).end(end_ns)
