"""What pools of replicas carry within the SLO, by simulation, and how many a load needs."""

from __future__ import annotations

import numpy as np

from report.config import FleetConfig
from report.fleet.batches import BatchModel
from report.fleet.simulation import Outcome, poisson_arrivals, simulate
from testbed.errors import UserError

POOLS = (1, 2, 4, 16, 64)  # beyond 64 replicas a larger pool only helps, so 64's figure is kept
SHARE = 0.99
MAX_REFUSED = 0.001
BISECTIONS = 9
WARM_SHARE = 0.1  # of the queries of a capacity simulation, left out while the queues fill
NO_LOAD_QPS = 1e-9


class Planner:
    """Simulates steady loads on pools of one kind of replica.

    Args:
        batches: the batch-time model of one replica.
        slo_s: p99 objective.
        config: deadline, routing and how much is simulated.

    Attributes:
        capacities: number of replicas to the queries a second that each of them carries within the SLO.
        num_simulated: queries so far.

    Raises:
        UserError: not even a trickle keeps the SLO.
    """

    def __init__(self, batches: BatchModel, *, slo_s: float, config: FleetConfig) -> None:
        self.slo_s = slo_s
        self.config = config
        self.num_simulated = 0
        self.capacities: dict[int, float] = {}
        self._batches = batches
        self._tokens = np.random.default_rng(1).choice(batches.tokens, config.queries_a_slot)
        least = 0.0
        for size in POOLS:
            least = self._capacity(size, least)
            self.capacities[size] = least

    def run(self, rate_qps: float, num_replicas: int, *, seed: int = 0) -> Outcome:
        """Simulate a steady Poisson load on a pool."""
        num = self.config.queries_a_slot
        self.num_simulated += num
        arrivals = poisson_arrivals(max(rate_qps, NO_LOAD_QPS), num, np.random.default_rng(seed))
        return simulate(
            self._batches,
            arrivals,
            self._tokens,
            num_replicas=num_replicas,
            routing=self.config.routing,
            deadline_s=self.config.deadline_s,
            seed=seed,
        )

    def per_replica(self, num_replicas: int) -> float:
        """Return what each of so many replicas carries, interpolated between the pools that were simulated."""
        sizes = np.log(list(self.capacities))
        return float(np.interp(np.log(num_replicas), sizes, list(self.capacities.values())))

    def needed(self, rate_qps: float) -> int:
        """Return the fewest replicas that carry a load within the SLO."""
        num = max(1, int(rate_qps / max(self.capacities.values())))
        while num * self.per_replica(num) < rate_qps:
            num += 1
        return num

    def _capacity(self, size: int, least: float) -> float:
        """Return the highest load a replica at which a pool keeps the SLO; no less than a smaller pool's."""
        low, high = least, 1.02 / self._batches.seconds_per_query()
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._keeps(middle * size, size) else (low, middle)
        if low == 0:
            msg = f"not even {high:.3g} queries/s keep p99 within {self.slo_s * 1000:g} ms; help: a looser SLO"
            raise UserError(msg)
        return low

    def _keeps(self, rate_qps: float, size: int) -> bool:
        outcome = self.run(rate_qps, size)
        settled = outcome.latency_s[int(WARM_SHARE * len(outcome.latency_s)) :]
        return float((settled > self.slo_s).mean()) <= 1 - SHARE and outcome.refused_share <= MAX_REFUSED
