"""What every record has: a kind, a schema version, the machine, the versions, the commit, the config, its parents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

SCHEMA_VERSION = 1

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Frozen(BaseModel):
    """A value in a record: immutable, no unknown fields, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class Interval(Frozen):
    """A confidence interval.

    Attributes:
        low: lower bound, in the unit of the value it belongs to.
        high: upper bound.
        level: coverage, 0.95 unless said.
        method: how it was computed, such as ``wilson`` or ``bootstrap``.
    """

    low: float
    high: float
    level: float = 0.95
    method: str


class Accuracy(Frozen):
    """Share of rows whose predicted label is the true one, with its interval."""

    value: float = Field(ge=0, le=1)
    interval: Interval
    num_samples: int = Field(gt=0)


class Energy(Frozen):
    """Joules of a window and how they were obtained. What was not measured is null with a reason, never 0.

    Attributes:
        energy_j: joules, or None.
        method: ``counter`` (a device's own energy counter), ``rapl`` (the kernel's powercap), ``estimate`` (watts from
            the price book times the time), or None.
        reason: why there is no figure, or what an estimate assumes.
    """

    energy_j: float | None = Field(default=None, ge=0)
    method: str | None = Field(default=None, pattern="^(counter|rapl|estimate)$")
    reason: str | None = None

    @model_validator(mode="after")
    def _null_has_a_reason(self) -> Self:
        if (self.energy_j is None) != (self.method is None):
            msg = "energy_j and method are both given or both null"
            raise ValueError(msg)
        if self.energy_j is None and not self.reason:
            msg = "energy that was not measured needs a reason"
            raise ValueError(msg)
        return self


class Usage(Frozen):
    """What a window of time used.

    Attributes:
        wall_s: seconds on a monotonic clock.
        cpu_s: user + system seconds of the process (tree).
        device_s: seconds that a GPU was allotted, None on a CPU.
        energy: joules with their method.
        peak_rss_bytes: largest resident set in the window; of a tree, the sum of its processes' peaks.
        peak_device_bytes: largest GPU memory in the window.
        context_switches: voluntary and involuntary, of the process (tree).
    """

    wall_s: float = Field(ge=0)
    cpu_s: float = Field(ge=0)
    device_s: float | None = None
    energy: Energy
    peak_rss_bytes: int | None = None
    peak_device_bytes: int | None = None
    context_switches: int | None = None


class Gpu(Frozen):
    """One GPU as NVML names it."""

    name: str
    memory_bytes: int
    driver: str


class Machine(Frozen):
    """What ran it.

    Attributes:
        cpu_model: the processor's own name.
        isa: the CPU flags that decide speed and quantization (``avx2``, ``avx512_vnni``, …), sorted.
        logical_cores: cores the kernel shows.
        usable_cores: cores this process may use: min(affinity, cgroup quota).
        memory_bytes: memory, or the cgroup's limit where lower.
        gpus: GPUs that NVML sees.
        os: kernel name and release.
        python: interpreter version.
    """

    cpu_model: str
    isa: tuple[str, ...]
    logical_cores: int
    usable_cores: float
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    os: str
    python: str


class Record(Frozen):
    """Base of every record; subclasses add ``kind`` and their figures.

    Attributes:
        created_at: UTC.
        machine: what it was measured on.
        versions: package name to version.
        git_commit: commit of this project, ``-dirty`` appended where the tree had changes; None outside a checkout.
        config: the config section that made it.
        parents: name to sha256 of the artifacts it was made from.
    """

    schema_version: int = SCHEMA_VERSION
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    machine: Machine
    versions: dict[str, str]
    git_commit: str | None
    config: dict[str, JsonValue]
    parents: dict[str, Sha256]
