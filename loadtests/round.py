"""One plan, or a worker's share of it, carried out on gevent's loop: open or closed, one raw row a query."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import gevent
import numpy as np
from gevent.pool import Group
from gevent.socket import wait_read
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError

from loadtests.alarm import Alarm, monotonic_s
from loadtests.arrivals import draw
from loadtests.plan import Outcome, Plan
from loadtests.protocols import wire_form
from loadtests.rows import Row, error_kind
from loadtests.texts import pick, read_texts

MAX_CONNECTIONS = 8192
CLOSED_LOOP_PASSES = 100  # shuffled anew each; then the same order comes again
LEAD_S = 0.05  # between drawing the plan and its first moment, so that nothing is late from the start


class Round:
    """One plan, or one worker's share of it, being carried out.

    Args:
        plan: what to do.
        index, shares: this worker takes every query whose number leaves ``index`` when divided by ``shares``.
        begin_unix_s: the first moment, the same for all workers; None for as soon as possible.
        fire: Locust's request event, for its own statistics; None where nobody reads them: a fifth less CPU a query.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        index: int = 0,
        shares: int = 1,
        begin_unix_s: float | None = None,
        fire: Callable[..., None] | None = None,
    ) -> None:
        self._plan = plan
        self._index, self._shares, self._begin_unix_s = index, shares, begin_unix_s
        self._fire = fire
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
        texts = cycle(pick(len(self._texts), len(self._texts) * CLOSED_LOOP_PASSES, seed=self._plan.seed))
        self._begin_s = self._first_moment_s()
        alarm = Alarm()
        self._sleep_until(self._begin_s, alarm)
        alarm.close()
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
        if self._fire is not None:
            self._fire(
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
