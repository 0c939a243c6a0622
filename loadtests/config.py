"""The ``loadtests:`` section of an experiment file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from loadtests.plan import Arrivals
from testbed.records.load import Scenario


class LoadTestConfig(BaseModel):
    """What is measured, and how long it may take. Seconds, queries a second and shares throughout.

    Attributes:
        slo_s: the latency objective, from the scheduled time.
        slo_percentile: the share of queries that must keep it, in percent.
        max_error_rate: errors at most, as a share of the queries.
        scenarios: MLPerf's words. Server stands for the capacity search; SingleStream is always run, for it gives the
            search its first guess.
        variants: names to test; empty for all of the bundle.
        texts_file: JSONL, CSV or plain text, one query each; the test split beside the bundle unless given.
        protocol: ``oip`` (Open Inference Protocol v2) or ``hf`` (the Hugging Face form).
        arrivals: the process of the open loop.
        seed: draws arrivals and texts.
        single_stream_s: length of the SingleStream run, and of every other closed scenario's.
        probe_s: length of a probe of the search; one that can no longer pass ends early.
        max_probes: probes of one search at most.
        resolution: the search stops when the bracket is this narrow, relative to its lower end.
        confirm_s: shortest confirming run; it lasts until enough queries for the percentile were sent.
        confirm_max_s: longest one.
        repeats: capacity measurements of each variant, interleaved over the variants.
        curve_fractions: offered loads of the latency curve, as shares of the confirmed one.
        curve_variants: how many variants get a curve on each profile, the fastest first.
        idle_s: how long the server is metered without load.
        query_timeout_s: an answer later than this is an error.
        assumed_watts: watts of the machine, used only where it has no energy counter, and marked as an estimate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    slo_s: float = Field(default=0.05, gt=0)
    slo_percentile: float = Field(default=99, gt=50, lt=100)
    max_error_rate: float = Field(default=0.001, ge=0, lt=1)
    scenarios: tuple[Scenario, ...] = ("SingleStream", "Server")
    variants: tuple[str, ...] = ()
    texts_file: Path | None = None
    protocol: Literal["oip", "hf"] = "oip"
    arrivals: Arrivals = Arrivals()
    seed: int = Field(default=1, ge=0)
    single_stream_s: float = Field(default=1.5, gt=0)
    probe_s: float = Field(default=1.0, gt=0)
    max_probes: int = Field(default=9, ge=1)
    resolution: float = Field(default=0.05, gt=0, lt=1)
    confirm_s: float = Field(default=3.0, gt=0)
    confirm_max_s: float = Field(default=10.0, gt=0)
    repeats: int = Field(default=1, ge=1)
    curve_fractions: tuple[float, ...] = (0.4, 0.75, 0.9)
    curve_variants: int = Field(default=2, ge=0)
    idle_s: float = Field(default=0.5, ge=0)
    query_timeout_s: float = Field(default=2.0, gt=0)
    assumed_watts: float | None = Field(default=None, gt=0)
