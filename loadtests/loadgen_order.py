"""What LoadGen is told, and what it says: apart from the module that loads LoadGen itself."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from loadtests.plan import Plan
from testbed.records import LatencySummary


class LoadGenPlan(BaseModel):
    """A plan, the percentile that LoadGen judges, and the folder that gets its logs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: Plan
    percentile: float
    folder: Path


class LoadGenOutcome(BaseModel):
    """What LoadGen said, in seconds, and what the system under test saw of HTTP.

    Attributes:
        valid: LoadGen's own verdict.
        reasons: why not, in its words.
        scheduled_qps: what it offered.
        completed_qps: what came back.
        num_queries: queries that were issued.
        errors: kind to count; LoadGen knows nothing of them.
        quantiles_s: ``p50``, ``p90``, … from the scheduled time, by LoadGen.
        seen: the same queries by our clock, from their issue; failed ones until they were completed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    valid: bool
    reasons: tuple[str, ...]
    scheduled_qps: float
    completed_qps: float
    num_queries: int
    errors: dict[str, int]
    quantiles_s: dict[str, float]
    seen: LatencySummary
