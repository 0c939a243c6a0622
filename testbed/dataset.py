"""A data set as the pipeline uses it: distinct texts in three splits that a hash of the text decides."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from testbed.builtin import BUILTIN, read_builtin
from testbed.errors import UserError
from testbed.folders import whole_folder
from testbed.machine import provenance
from testbed.readers import FILE_READERS, Row, Source, read_file, read_hub
from testbed.records.base import Frozen
from testbed.records.dataset import DatasetRecord, SplitSummary
from testbed.records.files import RecordError, file_sha256, load_as, save

RECORD = "record.json"
SPLITS = ("train", "dev", "test")
# A text's hash falls into one of ten bins: eight train, one dev, one test.
BINS = ("train",) * 8 + ("dev", "test")


class DatasetConfig(Frozen):
    """The section ``dataset:`` of an experiment.

    Attributes:
        source: a built-in name (``trec``, ``trec-fine``, ``movies``, ``tweets``, ``amazon``, ``nyt``, ``sms``), a
            ``.csv``, ``.jsonl`` or ``.parquet`` file, or a Hugging Face ``datasets`` id.
        text_column: column of the text, for files and hub ids.
        label_column: column of the label.
    """

    source: str = Field(min_length=1)
    text_column: str = "text"
    label_column: str = "label"

    def is_file(self) -> bool:
        """Return whether ``source`` is a file, by its suffix or because it exists, no built-in name and no hub id."""
        path = Path(self.source)
        return self.source not in BUILTIN and (path.suffix in FILE_READERS or path.is_file())


class Split(NamedTuple):
    """The texts of one split with their label ids."""

    texts: list[str]
    labels: list[int]


def prepare(config: DatasetConfig, folder: Path) -> DatasetRecord:
    """Read the source, drop repeats and empty texts, split, and write ``folder`` (splits first, record last).

    Raises:
        UserError: the source cannot be read or has no rows, a split is empty, or a label is missing from the training
            split.
    """
    source = _read(config)
    if not source.rows:
        msg = f"{config.source}: no rows; help: give a few hundred at least, each with a text and a label"
        raise UserError(msg)
    rows, num_duplicates, num_empty = distinct(source.rows)
    splits: dict[str, list[Row]] = {name: [] for name in SPLITS}
    for row in rows:
        splits[split_of(row)].append(row)
    labels = label_names(splits, where=config.source)
    with whole_folder(folder) as temporary:
        summaries = {name: _write_split(temporary / f"{name}.jsonl", splits[name], labels) for name in SPLITS}
        source_sha256 = hashlib.sha256(source.content).hexdigest() if source.content is not None else None
        record = DatasetRecord(
            **provenance(config.model_dump(mode="json"), {"source": source_sha256} if source_sha256 else {}),
            name=Path(config.source).stem if config.is_file() else config.source,
            source=config.source,
            source_sha256=source_sha256,
            labels=labels,
            splits=summaries,
            num_source_rows=len(source.rows),
            num_duplicates=num_duplicates,
            num_empty=num_empty,
        )
        save(record, temporary / RECORD)
    return record


def read_record(folder: Path) -> DatasetRecord:
    """Return the record of a prepared data set; raises RecordError."""
    return load_as(DatasetRecord, folder / RECORD)


def read_split(folder: Path, split: str) -> Split:
    """Return one split (``train``, ``dev`` or ``test``) of a prepared data set.

    Raises:
        RecordError: no such data set, or the split's file is not the one that the record names.
    """
    path = folder / f"{split}.jsonl"
    expected = read_record(folder).splits[split].sha256
    if not path.is_file() or file_sha256(path) != expected:
        msg = f"{path}: missing or changed since it was prepared; help: prepare the data set again"
        raise RecordError(msg)
    # Lines end at "\n" alone: str.splitlines would also cut a text at U+2028 or U+0085, which JSON leaves as they are.
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return Split(texts=[entry["text"] for entry in entries], labels=[entry["label"] for entry in entries])


def normalise(text: str) -> str:
    """Return the text as repeats are compared: NFKC, case folded, runs of white space as one blank."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def split_of(row: Row) -> str:
    """Return the row's split; it depends on the row alone, so a growing file moves no row."""
    key = row.split_key if row.split_key is not None else normalise(row.text)
    digest = hashlib.sha256(key.encode()).digest()
    return BINS[int.from_bytes(digest[:8], "big") % len(BINS)]


def distinct(rows: Sequence[Row]) -> tuple[list[Row], int, int]:
    """Return the rows without empty texts and later repeats, the number of repeats and the number of empty ones."""
    seen: set[str] = set()
    kept: list[Row] = []
    num_empty = 0
    for row in rows:
        key = normalise(row.text)
        if not key:
            num_empty += 1
        elif key not in seen:
            seen.add(key)
            kept.append(row)
    return kept, len(rows) - len(kept) - num_empty, num_empty


def label_names(splits: dict[str, list[Row]], *, where: str) -> tuple[str, ...]:
    """Return the training split's labels, whole numbers in their own order, others by name.

    Raises:
        UserError: an empty split, fewer than two labels, or a label of dev or test that training never sees.
    """
    for name in SPLITS:
        if not splits[name]:
            msg = f"{where}: no row fell into the {name} split; help: give more rows (a few hundred at least)"
            raise UserError(msg)
    known = {row.label for row in splits["train"]}
    for name in SPLITS:
        unseen = {row.label for row in splits[name]} - known
        if unseen:
            msg = (
                f"{where}: label {min(unseen)!r} is in the {name} split but not in the training split; "
                "help: give more rows with it, or merge it into another label"
            )
            raise UserError(msg)
    if len(known) < 2:  # noqa: PLR2004 - a classifier needs two
        msg = f"{where}: only the label {min(known)!r}; help: a classifier needs two labels at least"
        raise UserError(msg)
    numeric = all(label.isdecimal() for label in known)
    return tuple(sorted(known, key=int) if numeric else sorted(known))


def _read(config: DatasetConfig) -> Source:
    if config.source in BUILTIN:
        return read_builtin(config.source)
    columns = {"text_column": config.text_column, "label_column": config.label_column}
    if config.is_file():
        return read_file(Path(config.source), **columns)
    return read_hub(config.source, **columns)


def _write_split(path: Path, rows: Sequence[Row], labels: Sequence[str]) -> SplitSummary:
    ids = {label: index for index, label in enumerate(labels)}
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps({"text": row.text, "label": ids[row.label]}, ensure_ascii=False) + "\n")
    counts = Counter(row.label for row in rows)
    return SplitSummary(
        sha256=file_sha256(path), num_rows=len(rows), label_counts={label: counts[label] for label in labels}
    )
