"""A user's rows from CSV, JSONL, Parquet or a Hugging Face data set."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from testbed.errors import UserError


@dataclass(frozen=True)
class Row:
    """One text with its label's name.

    ``split_key`` stands in for the text where rows that belong together (a document's sentences) must share a split.
    """

    text: str
    label: str
    split_key: str | None = None


@dataclass(frozen=True)
class Source:
    """Rows, and the bytes they were read from where that is one file."""

    rows: list[Row]
    content: bytes | None


def read_file(path: Path, *, text_column: str, label_column: str) -> Source:
    """Return the rows of a ``.csv``, ``.jsonl`` or ``.parquet`` file.

    Raises:
        UserError: no such file, another suffix, a missing column, a label that is empty or several, broken syntax.
    """
    if not path.is_file():
        msg = (
            f"{path}: no such file in {Path.cwd()}; help: a relative dataset.source counts from where the command runs"
        )
        raise UserError(msg)
    if path.suffix not in FILE_READERS:
        msg = f"{path}: unknown kind of file; help: one of {', '.join(FILE_READERS)}"
        raise UserError(msg)
    try:
        entries = list(FILE_READERS[path.suffix](path))
    except (OSError, TypeError, ValueError, csv.Error, pa.ArrowException) as error:
        msg = f"{path}: not a readable {path.suffix} file ({error}); help: save it again as UTF-8 {path.suffix}"
        raise UserError(msg) from error
    rows = _rows(entries, where=str(path), text_column=text_column, label_column=label_column)
    return Source(rows=rows, content=path.read_bytes())


def read_hub(name: str, *, text_column: str, label_column: str) -> Source:
    """Return the rows of all labelled splits of a Hugging Face ``datasets`` id.

    Raises:
        UserError: `datasets` is not installed, the id cannot be loaded, or as for a file.
    """
    try:
        datasets = importlib.import_module("datasets")  # optional, and slow to import
    except ImportError:
        msg = (
            f"{name}: neither a built-in data set nor a file, and the package `datasets` that reads hub ids is not "
            "installed; help: pip install datasets, or name a .csv, .jsonl or .parquet file"
        )
        raise UserError(msg) from None
    try:
        splits = datasets.load_dataset(name)
    except Exception as error:
        msg = f"{name}: datasets could not load it ({error}); help: check the id and the network, or name a local file"
        raise UserError(msg) from error
    rows: list[Row] = []
    for split_name, split in splits.items():
        feature = split.features.get(label_column)
        names = getattr(feature, "names", None)
        entries = [
            {**entry, label_column: names[entry[label_column]]} if names else entry
            for entry in split
            if entry.get(label_column) != -1  # the hub's mark for a hidden label
        ]
        rows += _rows(entries, where=f"{name}/{split_name}", text_column=text_column, label_column=label_column)
    return Source(rows=rows, content=None)


def _csv_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.DictReader(stream, strict=True)
        for entry in reader:
            if None in entry:  # more fields than columns: a comma that no quotes protect has moved the label
                msg = f"line {reader.line_num} has more fields than the header, put quotes around a text with commas"
                raise ValueError(msg)
            yield entry


def _jsonl_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                entry = json.loads(line)
                if not isinstance(entry, dict):
                    msg = f"a line holds {type(entry).__name__}, an object is needed"
                    raise TypeError(msg)
                yield entry


def _parquet_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    yield from pa.parquet.read_table(path).to_pylist()


FILE_READERS: dict[str, Callable[[Path], Iterator[Mapping[str, Any]]]] = {
    ".csv": _csv_entries,
    ".jsonl": _jsonl_entries,
    ".parquet": _parquet_entries,
}


def _rows(entries: Iterable[Mapping[str, Any]], *, where: str, text_column: str, label_column: str) -> list[Row]:
    rows = []
    for number, entry in enumerate(entries, start=1):
        for column in (text_column, label_column):
            if column not in entry:
                found = ", ".join(str(name) for name in entry)
                msg = (
                    f"{where}: row {number} has no column {column!r}, only {found}; "
                    "help: set dataset.text_column and dataset.label_column"
                )
                raise UserError(msg)
        rows.append(
            Row(text=str(entry[text_column] or ""), label=_label(entry[label_column], f"{where}: row {number}"))
        )
    return rows


def _label(value: object, where: str) -> str:
    if isinstance(value, (list, tuple, dict)):
        msg = f"{where}: several labels ({value!r}); help: multi-label data is not supported, give each text one label"
        raise UserError(msg)
    if value is None or not str(value).strip():
        msg = f"{where}: no label; help: give it one or remove the row"
        raise UserError(msg)
    return str(value).strip()
