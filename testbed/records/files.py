"""Saves and loads records; a file under its final name is always whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from testbed.errors import UserError
from testbed.records.base import SCHEMA_VERSION, Record
from testbed.records.bundle import BundleManifest
from testbed.records.cost import CostReport
from testbed.records.dataset import DatasetRecord
from testbed.records.fleet import FleetPlan
from testbed.records.judges import JudgeReport
from testbed.records.load import Capacity, LoadTestRun
from testbed.records.quantization import QuantizationSearch, ServedVerification
from testbed.records.sweeps import BatchingSweep, OverloadReport
from testbed.records.training import TrainingRun

AnyRecord = Annotated[
    BatchingSweep
    | BundleManifest
    | Capacity
    | CostReport
    | DatasetRecord
    | FleetPlan
    | JudgeReport
    | LoadTestRun
    | OverloadReport
    | QuantizationSearch
    | ServedVerification
    | TrainingRun,
    Field(discriminator="kind"),
]
ADAPTER: TypeAdapter[Record] = TypeAdapter(AnyRecord)
R = TypeVar("R", bound=Record)


class RecordError(UserError):
    """A record that is missing, damaged, of another kind or of a newer schema."""


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call ``write`` with a temporary path beside ``path``, sync it to disk, then rename it into place.

    Whatever goes wrong (a full disk, a kill), ``path`` is either what it was or whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save(record: Record, path: Path) -> None:
    """Write a record as JSON, atomically."""
    text = record.model_dump_json(indent=1) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def load(path: Path) -> Record:
    """Read any record.

    Raises:
        RecordError: missing, not JSON, a newer schema, or fields that do not fit; says which and what to do.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        msg = f"{path}: no such record; help: run the stage that makes it first"
        raise RecordError(msg) from None
    except (OSError, ValueError) as error:
        msg = f"{path}: not a readable record ({error}); help: make it again"
        raise RecordError(msg) from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        msg = f"{path}: schema version {version}, this breakeven reads up to {SCHEMA_VERSION}; help: upgrade breakeven"
        raise RecordError(msg)
    try:
        return ADAPTER.validate_python(data, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        msg = f"{path}: field {where}: {first['msg']}; help: make the record again with this version of breakeven"
        raise RecordError(msg) from error


def load_as(kind: type[R], path: Path) -> R:
    """Read a record of one kind; raises RecordError for any other."""
    record = load(path)
    if not isinstance(record, kind):
        msg = f"{path}: holds a {type(record).__name__}, a {kind.__name__} is needed; help: check the path"
        raise RecordError(msg)
    return record
