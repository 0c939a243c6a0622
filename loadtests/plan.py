"""What a generator is told to do: one plan is one run, and can be replayed exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.records import Scenario

Process = Literal["poisson", "uniform", "gamma", "curve", "steps", "trace"]


class Arrivals(BaseModel):
    """An arrival process.

    Attributes:
        process: ``poisson``, ``uniform``, ``gamma`` (bursts), ``curve`` (a rate over time from a CSV), ``steps`` (rates
            one after the other), ``trace`` (recorded times).
        cv: coefficient of variation of gamma's gaps: 1 is Poisson, larger is burstier.
        file: of a curve: CSV with the columns ``second`` and ``rate`` (any unit: only the shape counts); of a trace:
            CSV with a column ``second``, or the raw rows (Parquet) of an earlier run.
        steps: multiples of the offered load, each for an equal part of the duration.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    process: Process = "poisson"
    cv: float = Field(default=1.0, gt=0)
    file: Path | None = None
    steps: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.process in {"curve", "trace"} and self.file is None:
            msg = f"arrivals of process {self.process!r} need a file; help: set arrivals.file"
            raise ValueError(msg)
        if self.process == "steps" and (not self.steps or min(self.steps) < 0 or sum(self.steps) == 0):
            msg = "arrivals of process 'steps' need rates; help: set arrivals.steps, such as [0.5, 2, 0.5]"
            raise ValueError(msg)
        return self


class Plan(BaseModel):
    """One run of the generator.

    Attributes:
        url: scheme, host and port.
        protocol: ``oip``, ``hf`` or ``template``.
        model: model name in the Open Inference Protocol's path.
        template: a YAML file that describes any other server's request.
        texts_file: where the queries' texts come from.
        scenario: MLPerf's word; Server is the open loop, the others are closed.
        arrivals: of the open loop.
        rate_qps: offered load of the open loop; of a closed one, the pace that all users keep together while they can.
        duration_s: of the arrivals; a closed loop issues no query after it.
        users: of a closed loop: how many queries are in flight.
        texts_per_query: texts that one query carries (MultiStream: 8).
        seed: draws arrivals and texts.
        timeout_s: an answer later than this after it was sent is an error.
        warmup_queries: sent before the run and not recorded, so that connections are open.
        slo_s: latency bound of the early end.
        stop_after_late: end the run once more queries than this are certainly late; None runs it whole.
        rows_file: Parquet file that gets one raw row a query.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    protocol: Literal["oip", "hf", "template"] = "oip"
    model: str = "model"
    template: Path | None = None
    texts_file: Path
    scenario: Scenario = "Server"
    arrivals: Arrivals = Arrivals()
    rate_qps: float | None = Field(default=None, gt=0)
    duration_s: float = Field(gt=0)
    users: int = Field(default=1, ge=1)
    texts_per_query: int = Field(default=1, ge=1)
    seed: int = Field(default=1, ge=0)
    timeout_s: float = Field(default=2.0, gt=0)
    warmup_queries: int = Field(default=8, ge=0)
    slo_s: float = Field(default=0.05, gt=0)
    stop_after_late: int | None = Field(default=None, ge=0)
    rows_file: Path

    @model_validator(mode="after")
    def _open_loop_has_a_rate(self) -> Self:
        if self.scenario == "Server" and self.rate_qps is None and self.arrivals.process != "trace":
            msg = "an open loop needs an offered load; help: set rate_qps"
            raise ValueError(msg)
        return self


class Outcome(BaseModel):
    """What the generator says of a run, besides its raw rows.

    Attributes:
        rows_file: the raw rows.
        num_scheduled: queries that the plan held.
        stopped_early: the run was ended because it could no longer pass.
        in_flight_mean: time average of the queries in flight over the arrivals' window, from a running count.
        window_s: that window.
        cpu_s: CPU seconds of the generator's processes during the run.
        wall_s: from the first scheduled time until the last answer.
        processes: how many of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows_file: Path
    num_scheduled: int
    stopped_early: bool
    in_flight_mean: float
    window_s: float
    cpu_s: float
    wall_s: float
    processes: int = 1


def merge(parts: list[Outcome]) -> Outcome:
    """Return what the workers' outcomes say together."""
    return Outcome(
        rows_file=parts[0].rows_file,
        num_scheduled=sum(part.num_scheduled for part in parts),
        stopped_early=any(part.stopped_early for part in parts),
        in_flight_mean=sum(part.in_flight_mean for part in parts),
        window_s=max(part.window_s for part in parts),
        cpu_s=sum(part.cpu_s for part in parts),
        wall_s=max(part.wall_s for part in parts),
        processes=len(parts),
    )
