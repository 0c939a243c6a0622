"""The load generator's process: with ``round``, all that imports Locust and gevent, which monkey-patch it.

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
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.fileobject import FileObjectThread
from gevent.queue import Queue
from locust import User, events, task
from locust.runners import MasterRunner, WorkerRunner

from loadtests.options import add_options, plan_of
from loadtests.plan import Outcome, Plan, merge
from loadtests.round import Round
from loadtests.rows import Row, write_rows

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser
    from locust.env import Environment
    from locust.rpc.protocol import Message

CREW_LEAD_S = 1.5  # before the first moment: workers draw and warm up by themselves
CREW_PATIENCE_S = 30.0


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
        whole = Round(plan, fire=_fire_of(self.environment))
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
        if environment.parsed_options.scratch:
            shutil.rmtree(environment.parsed_options.scratch, ignore_errors=True)
        environment.runner.quit()


def _take_share(environment: Environment, msg: Message, **_: object) -> None:
    """Carry out a share of a plan in a greenlet of its own, so that the master still hears from this worker."""
    gevent.spawn(_carry_out_share, environment, msg.data)


def _carry_out_share(environment: Environment, order: dict[str, Any]) -> None:
    plan = Plan.model_validate_json(order["plan"])
    share = Round(
        plan,
        index=order["index"],
        shares=order["shares"],
        begin_unix_s=order["begin_unix_s"],
        fire=_fire_of(environment),
    )
    outcome = share.run()
    rows = [astuple(row) for row in share.rows]
    assert environment.runner is not None
    environment.runner.send_message("part", {"rows": rows, "outcome": outcome.model_dump_json()})


def _fire_of(environment: Environment) -> Callable[..., None] | None:
    """Return Locust's request event, or None for plans of the runner, which reads the raw rows alone."""
    assert environment.parsed_options is not None
    return None if environment.parsed_options.plans else environment.events.request.fire


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
