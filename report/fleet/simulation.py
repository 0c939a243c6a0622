"""A discrete-event simulation of identical replicas, each with one queue and one lane that runs batches.

A query goes to the shorter of two random queues (Mitzenmacher 2001) or to a random one; it is refused where its
answer is predicted to be later than the deadline; an idle lane takes the oldest queries that fit a batch.
What is random about a replica (disturbances of a batch, hand-overs) is replayed in the order in which it was seen.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from report.fleet.batches import BatchModel, Floats, Ints

Routing = Literal["random", "two choices"]
LEAST_SHARE = 0.2  # of its fitted time, that a batch takes at least
NUM_DRAWS = 65_536  # routes are drawn once and walked round


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
) -> Outcome:
    """Run the queries through the replicas.

    Args:
        model: of one replica.
        arrivals_s: [queries], ascending.
        tokens: [queries].
        num_replicas: behind one balancer.
        routing: of the balancer.
        deadline_s: a query whose predicted answer is later is refused on arrival.
        seed: draws routes, and where each replica starts in the sequence of disturbances.
    """
    generator = np.random.default_rng(seed)
    return _Run(model, arrivals_s.tolist(), tokens.tolist(), num_replicas, deadline_s, generator).go(routing)


class _Run:
    """The state of one simulation; plain lists, for speed.

    An event is (time, replica, whether a batch begins): a batch takes what waits at the moment it begins.
    """

    def __init__(
        self,
        model: BatchModel,
        arrivals_s: list[float],
        tokens: list[int],
        num_replicas: int,
        deadline_s: float,
        generator: np.random.Generator,
    ) -> None:
        self._model, self._arrivals, self._tokens, self._deadline_s = model, arrivals_s, tokens, deadline_s
        self._queues: list[deque[int]] = [deque() for _ in range(num_replicas)]
        self._waiting_tokens = [0] * num_replicas
        self._free_s = [0.0] * num_replicas
        self._busy = [False] * num_replicas
        self._events: list[tuple[float, int, bool]] = []
        self._latency = [float("inf")] * len(arrivals_s)
        self._extras: list[float] = model.extras_s.tolist()
        self._wakes: list[float] = model.wakes_s.tolist()
        self._outside: list[float] = model.outside_s.tolist()
        # Each replica walks through what was seen from its own start, so that a slow spell stays one.
        self._at: list[int] = generator.integers(0, len(self._extras), num_replicas).tolist()
        self._first: list[int] = generator.integers(0, num_replicas, NUM_DRAWS).tolist()
        self._second: list[int] = generator.integers(0, num_replicas, NUM_DRAWS).tolist()
        self._seen: list[int] = generator.integers(0, len(self._outside), num_replicas).tolist()
        self._busy_s = 0.0
        self._num_batches = 0

    def go(self, routing: Routing) -> Outcome:
        """Carry all queries through and return what they met."""
        events, queues, busy = self._events, self._queues, self._busy
        for query, now_s in enumerate(self._arrivals):
            while events and events[0][0] <= now_s:
                self._happen(*heapq.heappop(events))
            replica = self._first[query % NUM_DRAWS]
            if routing == "two choices":
                other = self._second[query % NUM_DRAWS]
                if len(queues[other]) + busy[other] < len(queues[replica]) + busy[replica]:
                    replica = other
            if self._admits(replica, query, now_s):
                queues[replica].append(query)
                self._waiting_tokens[replica] += self._tokens[query]
                if not busy[replica]:
                    busy[replica] = True
                    wake_s = self._wakes[self._at[replica] % len(self._wakes)]
                    heapq.heappush(events, (now_s + wake_s, replica, True))
        while events:
            self._happen(*heapq.heappop(events))
        last_s = max(self._free_s)
        return Outcome(
            latency_s=np.asarray(self._latency),
            busy_s=self._busy_s,
            num_batches=self._num_batches,
            span_s=max(last_s, self._arrivals[-1]) - self._arrivals[0] if self._arrivals else 0.0,
            num_replicas=len(queues),
        )

    def _admits(self, replica: int, query: int, now_s: float) -> bool:
        model, waiting = self._model, len(self._queues[replica]) + 1
        tokens = self._waiting_tokens[replica] + self._tokens[query]
        batches = max(1.0, waiting / model.max_texts, tokens / model.max_tokens)
        predicted_s = model.fixed_s * batches + model.per_token_s * tokens + model.per_text_s * waiting
        return max(0.0, self._free_s[replica] - now_s) + predicted_s <= self._deadline_s

    def _happen(self, now_s: float, replica: int, begins: bool) -> None:
        if begins:
            self._begin(replica, now_s)
        elif self._queues[replica]:
            heapq.heappush(self._events, (now_s + self._model.gap_s, replica, True))
        else:
            self._busy[replica] = False

    def _begin(self, replica: int, begin_s: float) -> None:
        model, queue = self._model, self._queues[replica]
        batch = [queue.popleft()]
        tokens = self._tokens[batch[0]]
        while queue and len(batch) < model.max_texts and tokens + self._tokens[queue[0]] <= model.max_tokens:
            tokens += self._tokens[queue[0]]
            batch.append(queue.popleft())
        at = self._at[replica] = self._at[replica] + 1
        fitted_s = model.seconds(tokens, len(batch))
        seconds = max(LEAST_SHARE * fitted_s, fitted_s + self._extras[at % len(self._extras)])
        end_s = begin_s + seconds
        for query in batch:
            seen = self._seen[replica] = self._seen[replica] + 1
            self._latency[query] = end_s - self._arrivals[query] + self._outside[seen % len(self._outside)]
        self._waiting_tokens[replica] -= tokens
        self._free_s[replica] = end_s
        self._busy_s += seconds
        self._num_batches += 1
        heapq.heappush(self._events, (end_s, replica, False))
