"""The record of a data set: where its rows came from and how they were split."""

from __future__ import annotations

from typing import Literal

from testbed.records.base import Frozen, Record, Sha256


class SplitSummary(Frozen):
    """One split: its file's hash, rows, and rows per label."""

    sha256: Sha256
    num_rows: int
    label_counts: dict[str, int]


class DatasetRecord(Record):
    """A data set as the pipeline uses it.

    Attributes:
        name: built-in name, or the stem of the user's file.
        source: built-in name, path or hub id.
        source_sha256: hash of the source file; None where the source is not one file.
        labels: label names; the index is the label id everywhere.
        splits: ``train``, ``dev``, ``test``.
        num_source_rows: rows read.
        num_duplicates: rows dropped because their normalised text had been seen.
        num_empty: rows dropped because their text was empty.
    """

    kind: Literal["DatasetRecord"] = "DatasetRecord"
    name: str
    source: str
    source_sha256: Sha256 | None
    labels: tuple[str, ...]
    splits: dict[str, SplitSummary]
    num_source_rows: int
    num_duplicates: int
    num_empty: int
