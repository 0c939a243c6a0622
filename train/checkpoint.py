"""Resumable state on disk: whole or not there, hashed, and refused where the hash does not hold."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import torch
from pydantic import Field, ValidationError

from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.records.base import Frozen, Sha256, Usage
from testbed.records.files import file_sha256
from testbed.records.training import Epoch
from train.disk import is_full

KEPT = 2
STATE, STEPS, ABOUT = "state.pt", "steps.parquet", "about.json"


class About(Frozen):
    """Where the training stood.

    Attributes:
        step: steps done.
        epoch: the one that it is in, from 0.
        batch: batches of that epoch that are done.
        precision, precision_reason: chosen at the start; a resumed run keeps it.
        epochs: those that have ended.
        phases: usage up to here.
        files: name to sha256.
    """

    step: int
    epoch: int
    batch: int
    precision: str
    precision_reason: str
    epochs: tuple[Epoch, ...]
    phases: dict[str, Usage]
    files: dict[str, Sha256] = Field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was read: the state of model, optimiser and scaler, and the journal's rows so far."""

    about: About
    state: dict[str, Any]
    rows: list[dict[str, Any]]


class Checkpoints:
    """The checkpoints of one training, the last two of which are kept.

    Args:
        folder: theirs alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for leftover in folder.glob(".checkpoint-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def all(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        return sorted(self.folder.glob("checkpoint-*"))

    def at(self, step: int) -> Path:
        """Return the folder of the checkpoint after that many steps."""
        return self.folder / f"checkpoint-{step:08d}"

    def save(self, about: About, state: dict[str, Any], steps: Path) -> Path:
        """Write a checkpoint, then drop all but the last two.

        Raises:
            UserError: the disk is full or cannot be written; the last checkpoint is still there.
        """
        path = self.at(about.step)
        try:
            with whole_folder(path) as temporary:
                torch.save(state, temporary / STATE)
                shutil.copyfile(steps, temporary / STEPS)
                files = {name: file_sha256(temporary / name) for name in (STATE, STEPS)}
                text = about.model_copy(update={"files": files}).model_dump_json(indent=1)
                (temporary / ABOUT).write_text(text, encoding="utf-8")
        except (OSError, RuntimeError) as error:
            raise self._cannot_save(path, error) from error
        for old in self.all()[:-KEPT]:
            shutil.rmtree(old)
        return path

    def latest(self) -> Saved | None:
        """Return the newest checkpoint, or None where there is none.

        Raises:
            UserError: it is damaged.
        """
        if not (found := self.all()):
            return None
        path = found[-1]
        try:
            about = About.model_validate_json((path / ABOUT).read_text(encoding="utf-8"))
        except (OSError, ValidationError) as error:
            raise self.refused(path, f"{ABOUT} cannot be read: damaged, or another version's") from error
        for name, sha256 in about.files.items():
            if not (path / name).is_file() or file_sha256(path / name) != sha256:
                raise self.refused(path, f"{name} is not the file that was saved: damaged")
        state = torch.load(path / STATE, map_location="cpu", weights_only=True)
        return Saved(about=about, state=state, rows=pa.parquet.read_table(path / STEPS).to_pylist())

    def clear(self) -> None:
        """Remove all of them."""
        for path in self.all():
            shutil.rmtree(path)

    def refused(self, path: Path, what: str) -> UserError:
        """Return the error that says what is wrong with a checkpoint and what to do."""
        older = self.all()[:-1]
        otherwise = f"to go on from {older[-1].name}" if older else "to start again"
        return UserError(f"{path}: {what}; help: remove that folder {otherwise}")

    def _cannot_save(self, path: Path, error: Exception) -> UserError:
        # torch.save reports a full disk as a RuntimeError of its zip writer
        full = isinstance(error, RuntimeError) or is_full(error)
        reason = "no space left on the disk" if full else str(error)
        kept = self.all()
        state = f"{kept[-1].name} is whole" if kept else "there is no earlier one"
        return UserError(
            f"{path}: the checkpoint cannot be written: {reason} ({state}); help: free space and run again"
        )
