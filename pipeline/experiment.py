"""The experiment file: one YAML that names the data, the models, the variants, the profiles, the load and the SLO."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from loadtests.config import LoadTestConfig
from quantize.config import QuantizeConfig
from report.config import ReportConfig
from testbed.dataset import DatasetConfig
from testbed.errors import UserError
from testbed.records import Frozen, write_atomically
from train.config import TrainConfig

RESOLVED = "experiment.json"


class _EachKeyOnce(yaml.SafeLoader):
    """Safe YAML in which a key that stands twice is an error: the first of the two would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; raises ConstructorError for a key that stands twice."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


class ServeSection(Frozen):
    """Which deployments are load-tested: ``auto`` is every profile that this machine can run."""

    profiles: tuple[Literal["cpu", "edge", "gpu"], ...] | Literal["auto"] = "auto"


class Experiment(Frozen):
    """One experiment. Each section belongs to the stage of its name, which documents its fields."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="name of the run's folder and of the served model")
    dataset: DatasetConfig
    train: TrainConfig = Field(default_factory=TrainConfig)
    quantize: QuantizeConfig = Field(default_factory=QuantizeConfig)
    serve: ServeSection = Field(default_factory=ServeSection)
    loadtests: LoadTestConfig = Field(default_factory=LoadTestConfig)
    report: ReportConfig = Field(default_factory=ReportConfig)


def load_experiment(path: Path) -> Experiment:
    """Read and validate an experiment file.

    Raises:
        UserError: the file is missing or is not YAML, or fields do not fit; names file, field, what was wrong and
            what is allowed, for every field at once.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_EachKeyOnce)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        msg = f"{path}: no such experiment file; help: `ls experiments/` shows the ones that come with breakeven"
        raise UserError(msg) from None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read ({error}); help: an experiment is a YAML text file"
        raise UserError(msg) from error
    except yaml.YAMLError as error:
        msg = f"{path}: not YAML: {error}; help: compare it with experiments/trec.yaml"
        raise UserError(msg) from error
    if not isinstance(data, dict):
        msg = f"{path}: empty, or not a mapping of sections; help: compare it with experiments/trec.yaml"
        raise UserError(msg)
    try:
        return Experiment.model_validate(data)
    except ValidationError as error:
        lines = dict.fromkeys(f"{path}: {_explain(detail)}" for detail in error.errors())
        raise UserError("\n".join(lines)) from error


def save_resolved(experiment: Experiment, run: Path) -> None:
    """Write the experiment with every default filled in beside its results."""
    text = experiment.model_dump_json(indent=1) + "\n"
    write_atomically(run / RESOLVED, lambda path: path.write_text(text, encoding="utf-8"))


def load_resolved(run: Path) -> Experiment:
    """Read the experiment that a run was made from; raises UserError where the folder is no run."""
    if not (run / RESOLVED).is_file():
        msg = f"{run}: not a run ({RESOLVED} is missing); help: name the folder that `breakeven run` made, as runs/trec"
        raise UserError(msg)
    return load_experiment(run / RESOLVED)


def _explain(detail: ErrorDetails) -> str:
    # Pydantic names the member of a union that it tried, such as ``literal['auto']``: no part of the user's file.
    location = tuple(part for part in detail["loc"] if "[" not in str(part))
    field = ".".join(str(part) for part in location)
    if detail["type"] == "extra_forbidden":
        allowed = ", ".join(_fields_beside(location))
        return f"field {field}: unknown; help: allowed here: {allowed}"
    if detail["type"] == "missing":
        return f"field {field}: missing; help: add it, as in experiments/trec.yaml"
    return f"field {field}: {detail['msg']}, got {detail['input']!r}; help: {_allowed(location)}"


def _model_at(location: tuple[int | str, ...]) -> type[BaseModel] | None:
    model: Any = Experiment
    for part in location:
        field = model.model_fields.get(part) if isinstance(part, str) else None
        if field is None:
            return None
        model = next((kind for kind in get_args(field.annotation) if isinstance(kind, type)), field.annotation)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return None
    return model if isinstance(model, type) else None


def _fields_beside(location: tuple[int | str, ...]) -> list[str]:
    model = _model_at(location[:-1])
    return sorted(model.model_fields) if model else ["see the docs of this section"]


def _allowed(location: tuple[int | str, ...]) -> str:
    model = _model_at(location[:-1])
    field = model.model_fields.get(str(location[-1])) if model else None
    if field is None:
        return "see experiments/trec.yaml"
    described = f" ({field.description})" if field.description else ""
    kind = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
    return f"a value of type {kind.replace('typing.', '')}{described}"
