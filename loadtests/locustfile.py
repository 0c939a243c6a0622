"""The load generator: the one file that imports Locust and gevent, which monkey-patch the process.

By itself, open loop, arrivals drawn beforehand, latency from the scheduled time:

    locust -f loadtests/locustfile.py --headless -H http://127.0.0.1:8080 --rate 100 --duration 30 \
        --texts texts.txt --model trec --rows rows.parquet

The runner starts it with ``--plans``: it then reads one plan (JSON) a line from standard input, and answers each with
an outcome (JSON) on standard output. With Locust's ``--processes N``, or ``--master --expect-workers N`` here and
``--worker`` on other hosts, each worker takes every N-th query and ships its raw rows whole.

Locust's own users are closed loops, whatever their wait time; here one user spawns a greenlet for each arrival, and no
answer can hold a later query back.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import gevent
import numpy as np
from gevent.event import Event
from gevent.fileobject import FileObjectThread
from gevent.pool import Group
from gevent.queue import Queue
from gevent.socket import wait_read
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError
from locust import User, events, task
from locust.runners import MasterRunner, WorkerRunner

from loadtests.alarm import Alarm, monotonic_s
from loadtests.arrivals import draw
from loadtests.options import add_options, plan_of
from loadtests.plan import Outcome, Plan, merge
from loadtests.protocols import wire_form
from loadtests.rows import Row, error_kind, write_rows
from loadtests.texts import pick, read_texts

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment
    from locust.rpc.protocol import Message

MAX_CONNECTIONS = 8192
LEAD_S = 0.05  # between drawing the plan and its first moment, so that nothing is late from the start
CREW_LEAD_S = 1.5  # the same for workers, which first draw and warm up by themselves
CREW_PATIENCE_S = 30.0


class Round:
    """One plan, or one worker's share of it, being carried out.

    Args:
        plan: what to do.
        environment: Locust's.
        index, shares: this worker takes every query whose number leaves ``index`` when divided by ``shares``.
        begin_unix_s: the first moment, the same for all workers; None for as soon as possible.
    """

    def __init__(
        self,
        plan: Plan,
        environment: Environment,
        *,
        index: int = 0,
        shares: int = 1,
        begin_unix_s: float | None = None,
    ) -> None:
        self._plan = plan
        self._index, self._shares, self._begin_unix_s = index, shares, begin_unix_s
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
        self.rows: list[Row] = []
        self._in_flight = 0
        self._area_s = 0.0
        self._changed_s = 0.0
        self._num_in_time = 0
        self._stopped_early = False

    def run(self) -> Outcome:
        """Send every query of this share and wait for the answers; ``rows`` then holds them."""
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
        self._begin_s = self._first_moment_s()
        for query in range(self._index, len(times), self._shares):
            due_s = times[query]
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
        return len(range(self._index, len(times), self._shares)), window_s

    def _closed_loop(self) -> tuple[int, float]:
        """Each user sends its next query when the last one is done, or by its pace, whichever is later.

        The latency counts from that moment, as in every closed loop: what the wait for the last answer held back is
        not seen.
        """
        texts = iter(pick(len(self._texts), 1_000_000, seed=self._plan.seed))
        self._begin_s = self._first_moment_s()
        self._sleep_until(self._begin_s, Alarm())
        users = Group()
        for number in range(self._index, self._plan.users, self._shares):
            users.spawn(self._user, number, texts)
        users.join()
        window_s = max((row.done_s for row in self.rows), default=0.0)
        self._settle(window_s)
        self._window_area_s = self._area_s
        return len(self.rows), window_s

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
            row = Row(query=len(self.rows) * self._shares + self._index, text=picked[0], scheduled_s=scheduled_s)
            self._send(row, self._form.body([self._texts[text] for text in picked]))
            turn_s = max(self._now_s(), turn_s + pace_s)
            due_s = turn_s

    def _send(self, row: Row, body: bytes) -> None:
        self.rows.append(row)
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
        except (OSError, HTTPParseError) as fault:
            row.error, row.done_s = error_kind(fault), self._now_s()
        row.bytes_received = received
        self._enter(-1)
        latency_s = row.done_s - row.scheduled_s
        self._num_in_time += row.error is None and latency_s <= self._plan.slo_s
        error = None if row.error is None else RuntimeError(row.error)
        told: dict[str, Any] = {
            "response_time": latency_s * 1e3,
            "response_length": received,
            "exception": error,
            "context": {},
        }
        self._fire(request_type="POST", name=self._form.path, **told)  # type: ignore[no-untyped-call]

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
        num_due = int(np.searchsorted(past, self._now_s() - self._plan.slo_s)) // self._shares
        return num_due - self._num_in_time > self._plan.stop_after_late

    def _warm_up(self) -> None:
        """Open connections and let first requests pass, unrecorded; a dead server shows itself in the run."""
        group = Group()
        for text in pick(len(self._texts), self._plan.warmup_queries, seed=self._plan.seed):
            group.spawn(self._warm, self._form.body([self._texts[text]]))
        group.join()

    def _warm(self, body: bytes) -> None:
        try:
            self._client.request("POST", self._form.path, body, self._form.headers).read()
        except (OSError, HTTPParseError):
            return

    def _first_moment_s(self) -> float:
        if self._begin_unix_s is None:
            return monotonic_s() + LEAD_S
        return monotonic_s() + self._begin_unix_s - time.time()

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


class Crew:
    """The workers as the master sees them: each gets a share of a plan, and ships its raw rows whole."""

    def __init__(self, runner: MasterRunner) -> None:
        self._runner = runner
        self._parts: Queue[dict[str, object]] = Queue()
        runner.register_message("part", lambda msg, **_: self._parts.put(msg.data))

    def run(self, plan: Plan) -> Outcome:
        """Share a plan out, wait for every part, write all rows."""
        clients = list(self._runner.clients)
        order = {"plan": plan.model_dump_json(), "shares": len(clients), "begin_unix_s": time.time() + CREW_LEAD_S}
        for index, client in enumerate(clients):
            self._runner.send_message("plan", order | {"index": index}, client_id=client)
        patience_s = CREW_LEAD_S + 2 * plan.duration_s + 2 * plan.timeout_s + CREW_PATIENCE_S
        parts = [self._parts.get(timeout=patience_s) for _ in clients]
        write_rows([Row(*row) for part in parts for row in part["rows"]], plan.rows_file)
        return merge([Outcome.model_validate_json(part["outcome"]) for part in parts])


class Generator(User):
    """Locust's view of us: one user who carries out plans; on a worker the master's messages do that."""

    fixed_count = 1

    @task
    def carry_out(self) -> None:
        """Run every plan, then end Locust."""
        if isinstance(self.environment.runner, WorkerRunner):
            Event().wait()
        _lead(self.environment, self._alone)

    def _alone(self, plan: Plan) -> Outcome:
        whole = Round(plan, self.environment)
        outcome = whole.run()
        write_rows(whole.rows, plan.rows_file)
        return outcome


def _lead(environment: Environment, carry_out: Callable[[Plan], Outcome]) -> None:
    """Carry out every plan and answer each with its outcome, then end Locust."""
    assert environment.parsed_options is not None
    assert environment.runner is not None
    try:
        for plan in _plans(environment.parsed_options):
            sys.stdout.write(carry_out(plan).model_dump_json() + "\n")
            sys.stdout.flush()
    finally:
        environment.runner.quit()


def _take_share(environment: Environment, msg: Message, **_: object) -> None:
    """Carry out a share of a plan in a greenlet of its own, so that the master still hears from this worker."""
    gevent.spawn(_carry_out_share, environment, msg.data)


def _carry_out_share(environment: Environment, order: dict[str, Any]) -> None:
    plan = Plan.model_validate_json(order["plan"])
    share = Round(plan, environment, index=order["index"], shares=order["shares"], begin_unix_s=order["begin_unix_s"])
    outcome = share.run()
    rows = [astuple(row) for row in share.rows]
    assert environment.runner is not None
    environment.runner.send_message("part", {"rows": rows, "outcome": outcome.model_dump_json()})


def _plans(options: argparse.Namespace) -> Iterator[Plan]:
    if not options.plans:
        yield plan_of(options)
        return
    for line in FileObjectThread(os.fdopen(os.dup(0), "rb"), "rb"):
        yield Plan.model_validate_json(line)


@events.init_command_line_parser.add_listener  # type: ignore[untyped-decorator]
def _add_options(parser: LocustArgumentParser) -> None:
    add_options(parser.add_argument_group("open loop", "arrivals drawn beforehand; latency from the scheduled time"))


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _start(environment: Environment, **_: object) -> None:
    if isinstance(environment.runner, MasterRunner):
        gevent.spawn(_lead, environment, Crew(environment.runner).run)


@events.init.add_listener  # type: ignore[untyped-decorator]
def _prepare(environment: Environment, **_: object) -> None:
    options, runner = environment.parsed_options, environment.runner
    assert options is not None
    if not (isinstance(runner, WorkerRunner) or options.plans or (options.host and options.texts)):
        # Locust itself would end with status 0 and empty statistics.
        sys.stderr.write("no server or no texts to send; help: give -H URL and --texts FILE\n")
        raise SystemExit(3)
    if isinstance(runner, WorkerRunner):
        runner.register_message("plan", _take_share)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
