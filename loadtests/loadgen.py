"""MLPerf's LoadGen as a second judge, in its Server scenario: run as a module, in a process of its own.

LoadGen never sees an HTTP status. A query that failed is completed only after its deadline, so that it counts as late,
and every failure is counted beside LoadGen's own verdict. Its issue callback holds the interpreter's lock, so it only
puts the query on a queue. Every setting is given: its defaults are not MLPerf's. The outcome is LoadGen-judged, and
unofficial: nothing here was submitted to or verified by MLCommons.
"""

from __future__ import annotations

import http.client
import queue
import sys
import threading
import time
from collections import Counter
from typing import Protocol
from urllib.parse import urlsplit

import mlperf_loadgen as lg  # type: ignore[import-not-found]  # a compiled module without stubs

from loadtests.loadgen_order import LoadGenOutcome, LoadGenPlan, read_summary
from loadtests.plan import Plan
from loadtests.protocols import WireForm, wire_form
from loadtests.texts import read_texts

CONNECTIONS = 128
SUMMARY = "mlperf_log_summary.txt"
NANO = 1e-9


class Sample(Protocol):
    """LoadGen's query sample: ``id`` answers it, ``index`` names its text."""

    id: int
    index: int


class HttpSystem:
    """The system under test: a queue, and threads that each keep one connection to the server.

    Args:
        plan: where to, in which form, with which texts.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._form: WireForm = wire_form(plan.protocol, model=plan.model, template=plan.template)
        self._bodies = [self._form.body([text]) for text in read_texts(plan.texts_file)]
        self._waiting: queue.SimpleQueue[tuple[int, int, float] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self.errors: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.num_texts = len(self._bodies)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()

    def issue(self, samples: list[Sample]) -> None:
        """Take queries from LoadGen; anything more than this would delay its next arrivals."""
        for sample in samples:
            self._waiting.put((sample.id, sample.index, time.monotonic()))

    def stop(self) -> None:
        """End the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        address = urlsplit(self._plan.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=self._plan.timeout_s)
        while (query := self._waiting.get()) is not None:
            number, index, issued_s = query
            if fault := self._ask(connection, self._bodies[index]):
                with self._lock:
                    self.errors[fault] += 1
                time.sleep(max(0.0, issued_s + 1.1 * self._plan.slo_s - time.monotonic()))
            self.latencies_s.append(time.monotonic() - issued_s)
            lg.QuerySamplesComplete([lg.QuerySampleResponse(number, 0, 0)])
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, body: bytes) -> str | None:
        """Return what went wrong, or None for a right answer."""
        try:
            connection.request("POST", self._form.path, body, self._form.headers)
            response = connection.getresponse()
            return self._form.fault(response.status, response.read())
        except TimeoutError:
            connection.close()
            return "timeout"
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return f"connection:{type(error).__name__}"


def judge_with_loadgen(order: LoadGenPlan) -> LoadGenOutcome:
    """Run LoadGen's Server scenario against the plan's server and return what it said."""
    system = HttpSystem(order.plan)
    order.folder.mkdir(parents=True, exist_ok=True)
    log = lg.LogSettings()
    log.log_output.outdir = str(order.folder)
    log.log_output.copy_summary_to_stdout = False
    log.enable_trace = False
    under_test = lg.ConstructSUT(system.issue, lambda: None)
    library = lg.ConstructQSL(system.num_texts, system.num_texts, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(under_test, library, _settings(order), log)
    lg.DestroyQSL(library)
    lg.DestroySUT(under_test)
    system.stop()
    return read_summary((order.folder / SUMMARY).read_text(encoding="utf-8"), system.latencies_s, dict(system.errors))


def _settings(order: LoadGenPlan) -> lg.TestSettings:
    plan = order.plan
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = plan.rate_qps
    settings.server_target_latency_ns = round(plan.slo_s / NANO)
    settings.server_target_latency_percentile = order.percentile / 100
    settings.server_coalesce_queries = False
    settings.server_max_async_queries = 0
    settings.min_duration_ms = round(plan.duration_s * 1e3)
    settings.max_duration_ms = round(plan.duration_s * 1e3) + 60_000
    settings.min_query_count = 1
    settings.max_query_count = 0
    settings.performance_sample_count_override = 0
    settings.qsl_rng_seed = plan.seed
    settings.sample_index_rng_seed = plan.seed + 1
    settings.schedule_rng_seed = plan.seed + 2
    return settings


if __name__ == "__main__":
    outcome = judge_with_loadgen(LoadGenPlan.model_validate_json(sys.stdin.read()))
    sys.stdout.write(outcome.model_dump_json() + "\n")
