"""What LoadGen is told, and what it says in its own summary: apart from the module that loads LoadGen itself."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from loadtests.plan import Plan
from testbed.latency import summarise
from testbed.records import LatencySummary

NANO = 1e-9


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


def read_summary(text: str, latencies_s: list[float], errors: dict[str, int]) -> LoadGenOutcome:
    """Return the figures of LoadGen's own summary."""
    pairs = dict(_pair(line) for line in text.splitlines() if ":" in line)
    quantiles = {
        f"p{float(name.split()[0]):g}": float(value) * NANO
        for name, value in pairs.items()
        if name.endswith("percentile latency (ns)")
    }
    reasons = [line.strip(" *") for line in text.splitlines() if line.strip().startswith("*")]
    seen = summarise(latencies_s)
    assert seen is not None, "LoadGen issues at least one query"
    return LoadGenOutcome(
        valid=pairs["Result is"] == "VALID",
        reasons=tuple(reasons),
        scheduled_qps=float(pairs["Scheduled samples per second"]),
        completed_qps=float(pairs["Completed samples per second"]),
        num_queries=len(latencies_s),
        errors=errors,
        quantiles_s=quantiles,
        seen=seen,
    )


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
