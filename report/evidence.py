"""All records of a run, read and cross-checked: what does not belong together is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from testbed.errors import UserError
from testbed.records import (
    BatchingSweep,
    BundleManifest,
    Capacity,
    DatasetRecord,
    JudgeReport,
    LoadTestRun,
    Machine,
    OverloadReport,
    Record,
    RecordError,
    TrainingRun,
    file_sha256,
    load,
    load_as,
)
from testbed.records.fleet import FleetPlan

STAGES = ("teacher", "student")
STEADY = frozenset({"confirm", "curve", "load"})
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Evidence:
    """What a run's folder holds.

    Attributes:
        run: the folder.
        dataset: None where the run has no data set of its own.
        training: ``teacher`` and ``student``, those that were trained here.
        manifest: of the bundle.
        loads: file name to run, in order of name.
        capacities: file name to capacity search.
        overloads, judges, sweeps: the series of load tests that were made.
        plan: the fleet plan, where one was made for this bundle.
    """

    run: Path
    dataset: DatasetRecord | None
    training: dict[str, TrainingRun]
    manifest: BundleManifest
    loads: dict[str, LoadTestRun] = field(default_factory=dict)
    capacities: dict[str, Capacity] = field(default_factory=dict)
    overloads: tuple[OverloadReport, ...] = ()
    judges: tuple[JudgeReport, ...] = ()
    sweeps: tuple[BatchingSweep, ...] = ()
    plan: FleetPlan | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Return every (variant, profile) that was load-tested, in the bundle's order of variants."""
        order = [variant.name for variant in self.manifest.variants]
        seen = {(record.variant, record.profile) for record in self.measured().values()}
        return sorted(seen, key=lambda row: (order.index(row[0]), row[1]))

    def runs_of(self, variant: str, profile: str) -> dict[str, LoadTestRun]:
        """Return the load tests of one row, by file name."""
        return {name: run for name, run in self.loads.items() if (run.variant, run.profile) == (variant, profile)}

    def steady_runs_of(self, variant: str, profile: str) -> dict[str, LoadTestRun]:
        """Return a row's open-loop runs under a steady load and its own batching policy, by file name."""
        runs = self.runs_of(variant, profile)
        return {name: run for name, run in runs.items() if run.scenario == "Server" and run.purpose in STEADY}

    def capacity_of(self, variant: str, profile: str) -> Capacity | None:
        """Return the newest capacity search of one row, or None."""
        found = [c for c in self.capacities.values() if (c.variant, c.profile) == (variant, profile)]
        return max(found, key=lambda capacity: capacity.created_at, default=None)

    def machine_of(self, profile: str) -> Machine:
        """Return the machine on which a profile was load-tested."""
        return next(record.machine for record in self.measured().values() if record.profile == profile)

    def slo(self) -> tuple[float, float]:
        """Return the objective that all capacities share: seconds, percentile."""
        records: list[LoadTestRun | Capacity] = [*self.capacities.values(), *self.loads.values()]
        record = records[0]
        return record.slo_s, record.slo_percentile

    def measured(self) -> dict[str, LoadTestRun | Capacity]:
        """Return all records of load tests, by file name."""
        return {**self.loads, **self.capacities}


def gather(run: Path) -> Evidence:
    """Read a run's folder.

    Raises:
        RecordError: no manifest, no load test, or a damaged record.
        UserError: load tests of another bundle, of several machines on one profile, or under several SLOs.
    """
    manifest = load_as(BundleManifest, run / "bundle" / "manifest.json")
    names = {variant.name for variant in manifest.variants}
    found = {path.name: load(path) for path in sorted((run / "loads").glob("*.json"))}
    tested = {name: record for name, record in found.items() if isinstance(record, LoadTestRun | Capacity)}
    tested = {name: record for name, record in tested.items() if record.profile != "external"}
    for name, record in tested.items():
        if record.variant not in names:
            msg = f"{run / 'loads' / name}: {record.variant!r} is not in the bundle; help: load-test this bundle again"
            raise UserError(msg)
    if not tested:
        msg = f"{run / 'loads'}: no load test of this bundle; help: run `breakeven loadtest EXPERIMENT.yaml` first"
        raise RecordError(msg)
    evidence = Evidence(
        run=run,
        dataset=_optional(DatasetRecord, run / "dataset" / "record.json"),
        training={
            stage: trained
            for stage in STAGES
            if (trained := _optional(TrainingRun, run / stage / "record.json")) is not None
        },
        manifest=manifest,
        loads={name: record for name, record in tested.items() if isinstance(record, LoadTestRun)},
        capacities={name: record for name, record in tested.items() if isinstance(record, Capacity)},
        overloads=tuple(record for record in found.values() if isinstance(record, OverloadReport)),
        judges=tuple(record for record in found.values() if isinstance(record, JudgeReport)),
        sweeps=tuple(record for record in found.values() if isinstance(record, BatchingSweep)),
        plan=_plan(run),
    )
    _check_files(evidence)
    _check_machines(evidence)
    _check_slo(evidence)
    return evidence


def _optional(kind: type[R], path: Path) -> R | None:
    return load_as(kind, path) if path.exists() else None


def _plan(run: Path) -> FleetPlan | None:
    """Return the fleet plan unless it was made for another bundle."""
    plan = _optional(FleetPlan, run / "report" / "plan.json")
    current = file_sha256(run / "bundle" / "manifest.json")
    return plan if plan and plan.parents["manifest"] == current else None


def _check_files(evidence: Evidence) -> None:
    for name, run in evidence.loads.items():
        files = evidence.manifest.variant(run.variant).files
        if run.proof is not None and run.proof.file_sha256 not in files.values():
            msg = (
                f"{evidence.run / 'loads' / name}: served {run.proof.file_sha256[:12]}…, which is not the bundle's "
                f"{run.variant}; help: load-test this bundle again, or put the bundle back that was tested"
            )
            raise UserError(msg)


def _check_machines(evidence: Evidence) -> None:
    of_profile: dict[str, tuple[str, Machine]] = {}
    for name, record in evidence.measured().items():
        first_name, machine = of_profile.setdefault(record.profile, (name, record.machine))
        if _identity(machine) != _identity(record.machine):
            msg = (
                f"{evidence.run / 'loads'}: {first_name} and {name} were measured on different machines "
                f"({machine.cpu_model} and {record.machine.cpu_model}); help: test a profile on one machine"
            )
            raise UserError(msg)


def _identity(machine: Machine) -> tuple[object, ...]:
    return machine.cpu_model, machine.logical_cores, machine.usable_cores, tuple(gpu.name for gpu in machine.gpus)


def _check_slo(evidence: Evidence) -> None:
    slos = {(c.slo_s, c.slo_percentile) for c in evidence.capacities.values()}
    if len(slos) > 1:
        found = ", ".join(f"p{percentile:g} ≤ {slo_s * 1000:g} ms" for slo_s, percentile in sorted(slos))
        msg = f"{evidence.run / 'loads'}: capacities under several SLOs ({found}); help: load-test all under one"
        raise UserError(msg)
