"""The queue between the event loop and the lane: admission by weight and deadline, two priorities, no empty waiting."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from serve.curve import BatchCurve
from serve.errors import DeadlineAtRisk, QueueFull, Shed, TooLarge, Unavailable
from serve.jobs import Job, Row
from serve.policies import Policy

# Of each batch, what waiting rows of the lower class get though urgent ones wait: nobody starves.
PATIENT_SHARE = 0.25
# Where a batch has no room for both, the patient ones get a batch after so many that passed them over: the same share.
MOST_PASSED_OVER = 3
# A batch is cut short for the sake of its oldest rows, but not below the budget over this.
LEAST_SHARE_OF_BUDGET = 2


class Backlog:
    """Rows that wait for the lane. ``put`` is called on the event loop, ``take`` on the lane's thread.

    Args:
        policy: makes the batches.
        curve: predicts their seconds.
        max_tokens: what may wait; a single request above it can never be served. Urgent rows are counted against it
            alone: a queue full of patient ones refuses none of them.
        on_expired: called, on the lane's thread, with a job whose deadline cannot be kept any more.
    """

    def __init__(
        self, *, policy: Policy, curve: BatchCurve, max_tokens: int, on_expired: Callable[[Job, Shed], None]
    ) -> None:
        self.policy = policy
        self.curve = curve
        self.max_tokens = max_tokens
        self.tokens = 0
        self.rows = 0
        self._urgent_tokens = 0
        self._on_expired = on_expired
        self._urgent: deque[Row] = deque()
        self._patient: deque[Row] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._passed_over = 0
        self._lane_waits = False
        self._closed: str | None = None
        self._busy_until_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether it refuses what comes."""
        return self._closed is not None

    def put(self, job: Job) -> int:
        """Let a job wait for its turn, and return its tokens.

        Raises:
            TooLarge: heavier than the whole queue may be.
            QueueFull: too many tokens wait.
            DeadlineAtRisk: the model of batch time says that it would be late.
            Unavailable: closed.
        """
        weight = sum(job.weights)
        if weight > self.max_tokens:
            msg = f"the request weighs about {weight} tokens, the queue holds {self.max_tokens}; help: send fewer texts"
            raise TooLarge(msg)
        rows, urgent = len(job.weights), job.urgent
        with self._lock:
            refused = self.refusal(rows=rows, weight=weight, deadline_s=job.deadline_s, urgent=urgent)
            if refused is not None:
                raise refused
            waiting = self._urgent if urgent else self._patient
            for index, tokens in enumerate(job.weights):
                waiting.append(Row(job, index, tokens))
            self.tokens += weight
            self.rows += rows
            self._urgent_tokens += weight if urgent else 0
            if self._lane_waits:
                self._changed.notify()
        return weight

    def refusal(self, *, rows: int, weight: float, deadline_s: float, urgent: bool = False) -> Shed | None:
        """Return why so many rows and tokens would be refused now, or None; without the lock it is a good guess."""
        if self._closed:
            return Unavailable(f"the model takes no requests: {self._closed}", reason=self._closed)
        ahead_rows, ahead_tokens = self._ahead_of_urgent() if urgent else (self.rows, self.tokens)
        waiting = self._urgent_tokens if urgent else self.tokens
        now_s = time.monotonic()
        wait_s = self._wait_s(now_s, rows=ahead_rows + rows, tokens=ahead_tokens + weight)
        if waiting + weight > self.max_tokens:
            msg = f"{waiting} tokens wait, the limit is {self.max_tokens}; help: try again later"
            return QueueFull(msg, wait_s=wait_s)
        late_s = now_s + wait_s - deadline_s
        if late_s > 0:
            msg = f"the answer would come {late_s * 1e3:.0f} ms after its deadline; help: allow more time"
            return DeadlineAtRisk(msg, wait_s=late_s)
        return None

    def take(self) -> list[Row]:
        """Wait for rows and return the next batch; empty once the backlog is closed and drained."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                self._busy_until_s = 0.0
                self._drop_hopeless(now_s)
                if self.rows and (delay_s := self._delay_s(now_s)) <= 0:
                    if chosen := [row for row in self._choose(now_s) if self._hopeful(row, now_s)]:
                        self._busy_until_s = now_s + self.curve.seconds(sum(row.weight for row in chosen))
                        return chosen
                    continue
                if self._closed and not self.rows:
                    return []
                self._lane_waits = True
                self._changed.wait(delay_s if self.rows else None)
                self._lane_waits = False

    def close(self, reason: str) -> None:
        """Refuse what comes from now on; what waits is still served."""
        with self._changed:
            self._closed = reason
            self._changed.notify_all()

    def _ahead_of_urgent(self) -> tuple[float, float]:
        """Return the rows and tokens that are served before an urgent newcomer, the patient ones' share among them."""
        beside = PATIENT_SHARE / (1 - PATIENT_SHARE)
        tokens = self._urgent_tokens + min(self.tokens - self._urgent_tokens, beside * self._urgent_tokens)
        return len(self._urgent) + min(len(self._patient), beside * len(self._urgent)), tokens

    def _wait_s(self, now_s: float, *, rows: float, tokens: float) -> float:
        running_s = max(0.0, self._busy_until_s - now_s)
        batches = max(rows / self.policy.max_texts, tokens / self.policy.max_tokens, 1.0)
        return running_s + self.curve.seconds(tokens, batches=batches)

    def _delay_s(self, now_s: float) -> float:
        if not self.policy.delay_s or self._closed or self.rows >= self.policy.max_texts:
            return 0.0
        oldest_s = min(waiting[0].job.arrived_s for waiting in (self._urgent, self._patient) if waiting)
        return oldest_s + self.policy.delay_s - now_s

    def _choose(self, now_s: float) -> list[Row]:
        policy, max_tokens = self.policy, self._tokens_in_time(now_s)
        chosen: list[Row] = []
        if self._urgent and self._passed_over < MOST_PASSED_OVER:
            reserve = PATIENT_SHARE if self._patient else 0.0
            chosen = policy.choose(
                self._urgent,
                max_tokens=int(max_tokens * (1 - reserve)),
                max_texts=max(1, int(policy.max_texts * (1 - reserve))),
            )
        left = max_tokens - sum(row.weight for row in chosen)
        urgent, texts_left = len(chosen), policy.max_texts - len(chosen)
        if self._patient and texts_left > 0 and (not chosen or self._patient[0].weight <= left):
            chosen += policy.choose(self._patient, max_tokens=left, max_texts=texts_left)
        self._passed_over = self._passed_over + 1 if self._patient and len(chosen) == urgent else 0
        for row in chosen:
            self._forget(row)
        return chosen

    def _tokens_in_time(self, now_s: float) -> int:
        """Return how large the batch may be for its oldest rows to be in time; never so small that it is wasteful."""
        deadline_s = min(waiting[0].job.deadline_s for waiting in (self._urgent, self._patient) if waiting)
        in_time = self.curve.tokens_within(deadline_s - now_s)
        return min(self.policy.max_tokens, max(in_time, self.policy.max_tokens // LEAST_SHARE_OF_BUDGET))

    def _drop_hopeless(self, now_s: float) -> None:
        """Take what nobody waits for any more off the head of the queue, so that it takes no batch's room."""
        for waiting in (self._urgent, self._patient):
            while waiting and not self._hopeful(waiting[0], now_s):
                self._forget(waiting.popleft())

    def _hopeful(self, row: Row, now_s: float) -> bool:
        """Return whether somebody waits for the row and can still have it in time; if too late, say so."""
        job = row.job
        if job.is_over:
            return False
        if now_s + self.curve.seconds(row.weight) <= job.deadline_s:
            return True
        self._on_expired(job, DeadlineAtRisk("waited past its deadline; help: allow more time"))
        return False

    def _forget(self, row: Row) -> None:
        self.tokens -= row.weight
        self.rows -= 1
        self._urgent_tokens -= row.weight if row.job.urgent else 0
