"""Trials that were metered: earlier trainings of the same stages, and what the quantization search tried."""

from __future__ import annotations

from dataclasses import dataclass, field

from report.config import ReportConfig
from report.evidence import STAGES, Evidence
from testbed.errors import UserError
from testbed.metrics import mean_interval
from testbed.records import Interval, RecordError, TrainingRun, load_as
from testbed.records.quantization import QuantizationSearch

MIN_REPEATS = 2
ONE_RUN = "one training: no repeats to resample; train with other seeds and name the runs in report.trials"


@dataclass(frozen=True)
class Trials:
    """What was tried on the way.

    Attributes:
        training: stage to its earlier trainings, by their folders.
        searches: ``teacher`` or ``student`` to its quantization search.
    """

    training: dict[str, dict[str, TrainingRun]] = field(default_factory=dict)
    searches: dict[str, QuantizationSearch] = field(default_factory=dict)

    def repeats_of(self, run: TrainingRun) -> list[TrainingRun]:
        """Return the trainings that differ from a final one in nothing but their seed, itself first."""
        tried = self.training.get(run.stage, {}).values()
        return [run, *(other for other in tried if _settings(other) == _settings(run) and other.seed != run.seed)]


def read_trials(config: ReportConfig, evidence: Evidence) -> Trials:
    """Read the trainings of the folders in ``report.trials``, and the searches that lie in the bundle.

    Raises:
        UserError: a folder without any training record.
    """
    training: dict[str, dict[str, TrainingRun]] = {stage: {} for stage in STAGES}
    finals = {stage: run.checkpoint for stage, run in evidence.training.items()}
    for folder in config.trials:
        paths = {stage: folder / stage / "record.json" for stage in STAGES}
        found = {stage: load_as(TrainingRun, path) for stage, path in paths.items() if path.exists()}
        if not found:
            msg = f"report.trials: {folder} holds no teacher/record.json and no student/record.json; help: name runs"
            raise UserError(msg)
        for stage, run in found.items():
            # A student's trial often shares the final teacher: that one is paid for already.
            if run.checkpoint != finals.get(stage):
                training[stage][str(folder)] = run
    return Trials(training=training, searches=_searches(evidence))


def cost_interval(usd: list[float]) -> tuple[Interval | None, str | None]:
    """Return the interval of a training's mean cost over its repeats, or why there is none."""
    if len(usd) < MIN_REPEATS:
        return None, ONE_RUN
    return mean_interval(usd), None


def _searches(evidence: Evidence) -> dict[str, QuantizationSearch]:
    found = {}
    for stage in STAGES:
        path = evidence.run / "bundle" / f"search.{stage}.json"
        try:
            found[stage] = load_as(QuantizationSearch, path)
        except RecordError:
            if path.exists():
                raise
    return found


def _settings(run: TrainingRun) -> dict[str, object]:
    return {name: value for name, value in run.config.items() if name != "seed"}
