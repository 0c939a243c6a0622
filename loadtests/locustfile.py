"""The load generator: the one file that imports Locust and gevent, which monkey-patch the process.

By itself, open loop, arrivals drawn beforehand, latency from the scheduled time:

    locust -f loadtests/locustfile.py --headless -H http://127.0.0.1:8080 --rate 100 --duration 30 \
        --texts texts.txt --model trec --rows rows.parquet

The runner starts it with ``--plans``: it then reads one plan (JSON) a line from standard input, and answers each with
an outcome (JSON) on standard output. Locust's own users are closed loops, whatever their wait time; here one user
spawns a greenlet for each arrival, and no answer can hold a later query back.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import gevent
import numpy as np
from gevent.fileobject import FileObjectThread
from gevent.pool import Group
from gevent.socket import wait_read
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError
from locust import User, events, task

from loadtests.alarm import Alarm, monotonic_s
from loadtests.arrivals import draw
from loadtests.plan import Arrivals, Outcome, Plan
from loadtests.protocols import wire_form
from loadtests.rows import Row, write_rows
from loadtests.texts import pick, read_texts

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment

MAX_CONNECTIONS = 8192
LEAD_S = 0.05  # between drawing the plan and its first moment, so that nothing is late from the start


class Round:
    """One plan being carried out."""

    def __init__(self, plan: Plan, environment: Environment) -> None:
        self._plan = plan
        self._fire = environment.events.request.fire
        self._form = wire_form(plan.protocol, model=plan.model, template=plan.template)
        self._texts = read_texts(plan.texts_file)
        self._client = HTTPClient.from_url(
            plan.url,
            concurrency=MAX_CONNECTIONS,
            connection_timeout=plan.timeout_s,
            network_timeout=plan.timeout_s,
            block_size=65536,
        )
        self._rows: list[Row] = []
        self._in_flight = 0
        self._area_s = 0.0
        self._changed_s = 0.0
        self._num_in_time = 0
        self._stopped_early = False

    def run(self) -> Outcome:
        """Send every query of the plan, wait for the answers, write the raw rows."""
        self._warm_up()
        # A collection would pause the schedule for tens of milliseconds; a run's garbage waits until it is over.
        gc.collect()
        gc.disable()
        cpu_s = time.process_time()
        if self._plan.scenario == "Server":
            num_scheduled, window_s = self._open_loop()
        else:
            num_scheduled, window_s = self._closed_loop()
        wall_s = self._now_s()
        gc.enable()
        self._client.close()
        write_rows(self._rows, self._plan.rows_file)
        return Outcome(
            rows_file=self._plan.rows_file,
            num_scheduled=num_scheduled,
            stopped_early=self._stopped_early,
            in_flight_mean=self._window_area_s / window_s if window_s else 0.0,
            window_s=window_s,
            cpu_s=time.process_time() - cpu_s,
            wall_s=wall_s,
        )

    def _open_loop(self) -> tuple[int, float]:
        plan = self._plan
        times = draw(plan.arrivals, rate_qps=plan.rate_qps, duration_s=plan.duration_s, seed=plan.seed)
        texts = pick(len(self._texts), len(times), seed=plan.seed)
        bodies = [self._form.body([self._texts[text]]) for text in texts]
        senders, alarm = Group(), Alarm()
        self._begin_s = monotonic_s() + LEAD_S
        for query, due_s in enumerate(times):
            self._sleep_until(self._begin_s + due_s, alarm)
            if self._is_hopeless(times[:query]):
                self._stopped_early = True
                break
            row = Row(query=query, text=int(texts[query]), scheduled_s=float(due_s))
            senders.spawn(self._send, row, bodies[query])
        window_s = self._now_s() if self._stopped_early else float(times[-1])
        self._settle(window_s)
        self._window_area_s = self._area_s
        senders.join()
        alarm.close()
        return len(times), window_s

    def _closed_loop(self) -> tuple[int, float]:
        """Each user sends its next query when the last one is done, or by its pace, whichever is later.

        The latency counts from that moment, as in every closed loop: what the wait for the last answer held back is
        not seen.
        """
        texts = iter(pick(len(self._texts), 1_000_000, seed=self._plan.seed))
        self._begin_s = monotonic_s()
        users = Group()
        for number in range(self._plan.users):
            users.spawn(self._user, number, texts)
        users.join()
        window_s = max(row.done_s for row in self._rows)
        self._settle(window_s)
        self._window_area_s = self._area_s
        return len(self._rows), window_s

    def _user(self, number: int, texts: Iterator[np.int64]) -> None:
        pace_s = self._plan.users / self._plan.rate_qps if self._plan.rate_qps else 0.0
        turn_s = due_s = number / self._plan.users * pace_s
        while due_s < self._plan.duration_s:
            if pace_s:
                gevent.sleep(max(0.0, due_s - self._now_s()))
                due_s = self._now_s()
            picked = [int(next(texts)) for _ in range(self._plan.texts_per_query)]
            # Offline has all its queries at hand from the start.
            scheduled_s = 0.0 if self._plan.scenario == "Offline" else due_s
            row = Row(query=len(self._rows), text=picked[0], scheduled_s=scheduled_s)
            self._send(row, self._form.body([self._texts[text] for text in picked]))
            turn_s = max(self._now_s(), turn_s + pace_s)
            due_s = turn_s

    def _send(self, row: Row, body: bytes) -> None:
        self._rows.append(row)
        self._enter(1)
        row.sent_s = self._now_s()
        row.bytes_sent = len(body)
        received = 0
        try:
            response = self._client.request("POST", self._form.path, body, self._form.headers)
            row.first_byte_s = self._now_s()
            payload = bytes(response.read())
            row.done_s = self._now_s()
            row.status, received = response.status_code, len(payload)
            row.error = self._form.fault(row.status, payload)
            timing = response.get("server-timing")
            row.server_timing = timing if isinstance(timing, str) else None
        except TimeoutError:
            row.error, row.done_s = "timeout", self._now_s()
        except (OSError, HTTPParseError) as error:
            row.error, row.done_s = _kind_of(error), self._now_s()
        row.bytes_received = received
        self._enter(-1)
        latency_s = row.done_s - row.scheduled_s
        self._num_in_time += row.error is None and latency_s <= self._plan.slo_s
        self._fire(  # type: ignore[no-untyped-call]  # Locust's events take anything
            request_type="POST",
            name=self._form.path,
            response_time=latency_s * 1e3,
            response_length=received,
            exception=None if row.error is None else RuntimeError(row.error),
            context={},
        )

    def _enter(self, change: int) -> None:
        """Keep the running area under the queries in flight, apart from the rows: Little's law is checked with it."""
        self._settle(self._now_s())
        self._in_flight += change

    def _settle(self, now_s: float) -> None:
        self._area_s += self._in_flight * max(0.0, now_s - self._changed_s)
        self._changed_s = max(self._changed_s, now_s)

    def _is_hopeless(self, past: np.ndarray) -> bool:
        """Tell whether more queries are late for certain than the plan allows."""
        if self._plan.stop_after_late is None:
            return False
        num_due = int(np.searchsorted(past, self._now_s() - self._plan.slo_s))
        return num_due - self._num_in_time > self._plan.stop_after_late

    def _warm_up(self) -> None:
        """Open connections and let first requests pass, unrecorded; a dead server shows itself in the run."""
        texts = pick(len(self._texts), self._plan.warmup_queries, seed=self._plan.seed)
        group = Group()
        for text in texts:
            group.spawn(self._warm, self._form.body([self._texts[text]]))
        group.join()

    def _warm(self, body: bytes) -> None:
        try:
            self._client.request("POST", self._form.path, body, self._form.headers).read()
        except (OSError, HTTPParseError):
            return

    def _now_s(self) -> float:
        return monotonic_s() - self._begin_s

    @staticmethod
    def _sleep_until(due_s: float, alarm: Alarm) -> None:
        if due_s > monotonic_s():
            alarm.set(due_s)
            wait_read(alarm.descriptor)
            alarm.clear()
        else:
            gevent.sleep(0)  # behind: let answers in all the same


class Generator(User):
    """Locust's view of us: one user who carries out plans."""

    fixed_count = 1

    @task
    def carry_out(self) -> None:
        """Run every plan, then end Locust."""
        options = self.environment.parsed_options
        try:
            for plan in _plans(options):
                outcome = Round(plan, self.environment).run()
                sys.stdout.write(outcome.model_dump_json() + "\n")
                sys.stdout.flush()
        finally:
            self.environment.runner.quit()


def _kind_of(error: Exception) -> str:
    """Name a failed connection by its errno where it has one (``connection:ECONNREFUSED``)."""
    number = error.errno if isinstance(error, OSError) else None
    return f"connection:{errno.errorcode.get(number or 0, type(error).__name__)}"


def _plans(options: argparse.Namespace) -> Iterator[Plan]:
    if not options.plans:
        yield _plan_of(options)
        return
    for line in FileObjectThread(os.fdopen(os.dup(0), "rb"), "rb"):
        yield Plan.model_validate_json(line)


def _plan_of(options: argparse.Namespace) -> Plan:
    arrivals = {"process": options.arrivals, "cv": options.cv, "file": options.arrivals_file, "steps": options.steps}
    return Plan(
        url=options.host,
        protocol=options.protocol,
        model=options.model,
        template=options.template,
        texts_file=options.texts,
        scenario=options.scenario,
        arrivals=Arrivals.model_validate({key: value for key, value in arrivals.items() if value is not None}),
        rate_qps=options.rate,
        duration_s=options.duration,
        users=options.in_flight,
        seed=options.seed,
        timeout_s=options.query_timeout,
        rows_file=options.rows,
    )


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: LocustArgumentParser) -> None:
    own = parser.add_argument_group("open loop", "arrivals drawn beforehand; latency from the scheduled time")
    own.add_argument("--plans", action="store_true", help="read plans (JSON lines) from standard input")
    own.add_argument("--rate", type=float, default=10.0, help="offered load, queries a second")
    own.add_argument("--duration", type=float, default=10.0, help="seconds of arrivals")
    own.add_argument("--seed", type=int, default=1, help="draws arrivals and texts")
    own.add_argument("--texts", type=Path, help="JSONL, CSV or plain text, one query each")
    own.add_argument("--protocol", default="oip", choices=["oip", "hf", "template"], help="form of the request")
    own.add_argument("--model", default="model", help="model name in the Open Inference Protocol's path")
    own.add_argument("--template", type=Path, help="YAML with path, body, headers, expect: any other server")
    own.add_argument("--scenario", default="Server", choices=["Server", "SingleStream", "ClosedLoop"])
    own.add_argument("--in-flight", type=int, default=1, help="users of a closed loop")
    own.add_argument(
        "--arrivals", default="poisson", choices=["poisson", "uniform", "gamma", "curve", "steps", "trace"]
    )
    own.add_argument("--cv", type=float, default=1.0, help="coefficient of variation of gamma's gaps")
    own.add_argument("--arrivals-file", type=Path, help="CSV of a curve, or a trace")
    own.add_argument("--steps", type=json.loads, help="JSON list of multiples of the rate")
    own.add_argument("--query-timeout", type=float, default=2.0, help="seconds until a query is given up")
    own.add_argument("--rows", type=Path, default=Path("rows.parquet"), help="Parquet file of raw rows")


@events.init.add_listener  # type: ignore[untyped-decorator]
def _prepare(environment: Environment, **_: object) -> None:
    options = environment.parsed_options
    if options is not None and not options.plans and not (options.host and options.texts):
        # Locust itself would end with status 0 and empty statistics.
        sys.stderr.write("no server or no texts to send; help: give -H URL and --texts FILE\n")
        raise SystemExit(3)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
