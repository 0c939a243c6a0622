"""Spans arrive at a collector over OTLP/HTTP, under the client's trace; without an endpoint the SDK stays out."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.served import ROOT, running, write_bundle

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

pytestmark = pytest.mark.integration

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARTS = ["queue", "tokenize", "batch", "compute", "serialise"]


class Collector(ThreadingHTTPServer):
    """Takes what an OpenTelemetry collector takes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.spans: list[Span] = []


class Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        assert isinstance(self.server, Collector)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans.extend(scope.spans)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def test_spans_arrive_under_the_clients_trace(collector: Collector, tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    with running(write_bundle(tmp_path / "words"), OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as server:
        headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
        assert httpx.post(f"{server.url}/predict", json={"inputs": ["cat", "dog"]}, headers=headers).status_code == 200
        late = {"x-breakeven-timeout-ms": "0.001"}
        assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}, headers=late).status_code == 503
        assert server.terminate() == 0  # which sends what is left
    ours = [span for span in collector.spans if span.trace_id.hex() == TRACE_ID]
    [root] = [span for span in ours if span.parent_span_id.hex() == PARENT_ID]
    assert (root.name, root.kind) == ("infer words", Span.SPAN_KIND_SERVER)
    attributes = {pair.key: pair.value for pair in root.attributes}
    assert attributes["http.response.status_code"].int_value == 200
    assert attributes["breakeven.texts"].int_value == 2
    parts = sorted((span for span in ours if span.parent_span_id == root.span_id), key=lambda s: s.start_time_unix_nano)
    assert [span.name for span in parts] == PARTS
    assert all(
        root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano
        for span in parts
    )
    [refused] = [span for span in collector.spans if span.trace_id.hex() != TRACE_ID]
    assert refused.status.code == Status.STATUS_CODE_ERROR


def test_without_an_endpoint_the_sdk_is_not_even_imported() -> None:
    program = "import sys, serve.worker; sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
