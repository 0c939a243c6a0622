"""A discrete-event simulation of identical replicas, each with one queue and one lane that runs batches.

A query goes to the shorter of two random queues (Mitzenmacher 2001) or to a random one. The rest is the server's own
rule: a query is refused where its answer is predicted to be later than the deadline, or dropped where it has waited too
long; an idle lane takes the oldest queries that fit a batch, fewer where the oldest would be late otherwise.
What is random about a replica (ways in and out, disturbances of a batch, hand-overs) is replayed in the order in which
it was seen, so that a slow spell stays one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from report.fleet.batches import BatchModel, size_class
from report.fleet.trace import Floats, Ints

Routing = Literal["random", "two choices"]
LEAST_SHARE = 0.2  # of its fitted time, that a batch takes at least
LEAST_PER_TOKEN_S = 1e-9
NUM_DRAWS = 65_536  # routes are drawn once and walked round
LEAST_SHARE_OF_BUDGET = (
    2  # a batch is cut for its oldest query's sake, but not below the budget over this: serve's rule
)


@dataclass(frozen=True)
class Outcome:
    """What the simulated queries met.

    Attributes:
        latency_s: [queries], infinity for a refused one.
        busy_s: of all lanes together.
        num_batches: that were run.
        span_s: from the first arrival to the last answer.
        num_replicas: that were there.
    """

    latency_s: Floats
    busy_s: float
    num_batches: int
    span_s: float
    num_replicas: int

    def quantile_s(self, share: float) -> float:
        """Return the exact order statistic; infinity where too many queries were refused."""
        ordered = np.sort(self.latency_s)
        return float(ordered[max(0, int(np.ceil(share * len(ordered) - 1e-9)) - 1)])

    @property
    def refused_share(self) -> float:
        """Queries that were refused."""
        return float(np.isinf(self.latency_s).mean())

    @property
    def utilisation(self) -> float:
        """Share of the replicas' time in which their lanes were busy."""
        return self.busy_s / (self.num_replicas * self.span_s) if self.span_s else 0.0

    def within(self, slo_s: float) -> float:
        """Return the share of all queries that were answered within the SLO."""
        return float((self.latency_s <= slo_s).mean())


def poisson_arrivals(rate_qps: float, num_queries: int, generator: np.random.Generator) -> Floats:
    """Return arrival times in seconds of a Poisson process."""
    return np.cumsum(generator.exponential(1 / rate_qps, num_queries))


def simulate(
    model: BatchModel,
    arrivals_s: Floats,
    tokens: Ints,
    *,
    num_replicas: int = 1,
    routing: Routing = "two choices",
    deadline_s: float = 1.0,
    seed: int = 0,
    aligned: bool = False,
) -> Outcome:
    """Run the queries through the replicas.

    Args:
        model: of one replica.
        arrivals_s: [queries], ascending.
        tokens: [queries].
        num_replicas: behind one balancer.
        routing: of the balancer.
        deadline_s: from a query's arrival; one whose predicted answer is later is refused.
        seed: draws routes, and where each replica starts in what is replayed.
        aligned: what is replayed comes when it came, for a single replica and the very run that it was seen in.
    """
    generator = np.random.default_rng(seed)
    return _Run(model, arrivals_s, tokens.tolist(), num_replicas, deadline_s, generator, aligned).go(routing)


class _Run:
    """The state of one simulation; plain lists, for speed.

    An event is (time, replica, whether a batch begins): a batch takes what waits at the moment it begins, and ends
    later the more requests come in meanwhile.
    """

    def __init__(
        self,
        model: BatchModel,
        sent_s: Floats,
        tokens: list[int],
        num_replicas: int,
        deadline_s: float,
        generator: np.random.Generator,
        aligned: bool,
    ) -> None:
        self._model, self._tokens, self._deadline_s = model, tokens, deadline_s
        starts = np.zeros(num_replicas) if aligned else generator.random(num_replicas)
        ways_in = np.arange(len(sent_s)) + int(starts[0] * len(model.in_s))
        arrived_s = sent_s + model.in_s[ways_in % len(model.in_s)]
        self._order: list[int] = np.argsort(arrived_s, kind="stable").tolist()
        self._sent: list[float] = sent_s.tolist()
        self._arrived: list[float] = arrived_s.tolist()
        self._latency = [float("inf")] * len(sent_s)
        self._replicas = [_Replica() for _ in range(num_replicas)]
        self._events: list[tuple[float, int, bool]] = []
        self._extras: list[list[float]] = [extras_s.tolist() for extras_s in model.extras_s]
        self._seen_at: list[list[float]] = [each.tolist() for each in model.extras_at_s] if aligned else []
        self._wakes: list[float] = model.wakes_s.tolist()
        self._gaps: list[float] = model.gaps_s.tolist()
        self._outs: list[float] = model.outs_s.tolist()
        for replica, begin in zip(self._replicas, starts.tolist(), strict=True):
            replica.at = [int(begin * len(extras)) for extras in self._extras]
            replica.wake, replica.gap = int(begin * len(self._wakes)), int(begin * len(self._gaps))
            replica.seen = int(begin * len(self._outs))
        self._first: list[int] = generator.integers(0, num_replicas, NUM_DRAWS).tolist()
        self._second: list[int] = generator.integers(0, num_replicas, NUM_DRAWS).tolist()
        self._per_token_s = model.per_token_s + model.per_text_s / max(1.0, float(model.tokens.mean()))
        self._busy_s = 0.0
        self._num_batches = 0

    def go(self, routing: Routing) -> Outcome:
        """Carry all queries through and return what they met."""
        events, replicas = self._events, self._replicas
        for query in self._order:
            now_s = self._arrived[query]
            while events and events[0][0] <= now_s:
                self._happen(*heapq.heappop(events))
            chosen = self._first[query % NUM_DRAWS]
            if routing == "two choices":
                other = self._second[query % NUM_DRAWS]
                if replicas[other].load < replicas[chosen].load:
                    chosen = other
            self._arrive(chosen, query, now_s)
        while events:
            self._happen(*heapq.heappop(events))
        last_s = max(replica.free_s for replica in replicas)
        return Outcome(
            latency_s=np.asarray(self._latency),
            busy_s=self._busy_s,
            num_batches=self._num_batches,
            span_s=max(last_s, self._sent[-1]) - self._sent[0] if self._sent else 0.0,
            num_replicas=len(replicas),
        )

    def _arrive(self, chosen: int, query: int, now_s: float) -> None:
        replica = self._replicas[chosen]
        replica.arrivals += 1
        if not self._admits(replica, query, now_s):
            return
        replica.queue.append(query)
        replica.tokens += self._tokens[query]
        if not replica.busy:
            replica.busy = True
            replica.wake += 1
            wake_s = self._wakes[replica.wake % len(self._wakes)]
            heapq.heappush(self._events, (now_s + wake_s, chosen, True))

    def _admits(self, replica: _Replica, query: int, now_s: float) -> bool:
        model, waiting = self._model, len(replica.queue) + 1
        tokens = replica.tokens + self._tokens[query]
        batches = max(1.0, waiting / model.max_texts, tokens / model.max_tokens)
        predicted_s = model.fixed_s * batches + model.per_token_s * tokens + model.per_text_s * waiting
        return max(0.0, replica.free_s - now_s) + predicted_s <= self._deadline_s

    def _happen(self, now_s: float, chosen: int, begins: bool) -> None:
        replica = self._replicas[chosen]
        if begins:
            self._begin(chosen, replica, now_s)
            return
        stolen_s = self._model.per_arrival_s * replica.arrivals
        if stolen_s:  # what came in while the batch ran took time from it
            replica.arrivals, replica.free_s = 0, now_s + stolen_s
            heapq.heappush(self._events, (replica.free_s, chosen, False))
            return
        self._end(chosen, replica, now_s)

    def _begin(self, chosen: int, replica: _Replica, begin_s: float) -> None:
        batch, tokens = self._take(replica, begin_s)
        replica.batch, replica.begin_s, replica.arrivals = batch, begin_s, 0
        if not batch:
            replica.busy = False
            return
        model = self._model
        size = min(size_class(len(batch)), len(self._extras) - 1)
        extras, at = self._extras[size], replica.at[size]
        if self._seen_at:  # skip what had its moment before; never the same one twice
            at = max(at, bisect_left(self._seen_at[size], begin_s))
        replica.at[size] = at + 1
        fitted_s = model.seconds(tokens, len(batch)) + model.per_answer_s * replica.answers
        seconds = max(LEAST_SHARE * fitted_s, fitted_s + extras[at % len(extras)])
        replica.free_s = begin_s + seconds
        heapq.heappush(self._events, (replica.free_s, chosen, False))

    def _take(self, replica: _Replica, now_s: float) -> tuple[list[int], int]:
        """Take the next batch off the queue and return it with its tokens; what waited too long is dropped."""
        model, queue = self._model, replica.queue
        batch: list[int] = []
        tokens, most = 0, model.max_tokens
        while queue and len(batch) < model.max_texts:
            weight = self._tokens[queue[0]]
            left_s = self._arrived[queue[0]] + self._deadline_s - now_s
            if model.seconds(weight, 1) > left_s:
                replica.tokens -= self._tokens[queue.popleft()]
                continue
            if not batch and np.isfinite(left_s):
                in_time = int((left_s - model.fixed_s) / max(self._per_token_s, LEAST_PER_TOKEN_S))
                most = min(most, max(in_time, most // LEAST_SHARE_OF_BUDGET))
            if batch and tokens + weight > most:
                break
            batch.append(queue.popleft())
            tokens += weight
        replica.tokens -= tokens
        return batch, tokens

    def _end(self, chosen: int, replica: _Replica, end_s: float) -> None:
        batch, model = replica.batch, self._model
        out_s = model.out_fixed_s + model.out_per_text_s * len(batch)
        for query in batch:
            replica.seen += 1
            self._latency[query] = (
                end_s - self._sent[query] + max(0.0, out_s + self._outs[replica.seen % len(self._outs)])
            )
        self._busy_s += end_s - replica.begin_s
        self._num_batches += 1
        if replica.queue:
            replica.answers = len(batch)
            replica.gap += 1
            gap_s = self._gaps[replica.gap % len(self._gaps)]
            heapq.heappush(self._events, (end_s + gap_s, chosen, True))
        else:
            replica.answers, replica.busy = 0, False


class _Replica:
    """One replica: its queue, its running batch, and where it is in what is replayed."""

    __slots__ = (
        "answers",
        "arrivals",
        "at",
        "batch",
        "begin_s",
        "busy",
        "free_s",
        "gap",
        "queue",
        "seen",
        "tokens",
        "wake",
    )

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.tokens = 0  # that wait
        self.busy = False
        self.batch: list[int] = []
        self.begin_s = 0.0
        self.free_s = 0.0  # when the running batch ends, by what is known now
        self.arrivals = 0  # since the batch began, not yet counted into its time
        self.answers = 0  # of the batch before, still on their way out
        self.at: list[int] = []  # by size class
        self.seen = self.wake = self.gap = 0

    @property
    def load(self) -> int:
        """What a balancer compares."""
        return len(self.queue) + self.busy
