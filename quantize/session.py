"""Runs an ONNX file in either layout on the CPU provider, one thread unless said."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from testbed.denormals import FlushedDenormals
from testbed.errors import UserError

T = TypeVar("T")
Rows = Sequence[Sequence[int]]
Logits = NDArray[np.float32]
Ids = NDArray[np.int64]


class Runner(Protocol):
    """What both layouts have in common: rows of token ids in, one row of logits each out."""

    def run(self, rows: Rows) -> Logits:
        """Return the logits [texts, labels] of these rows computed in one batch."""
        ...


def open_session(path: Path, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Open a session on the CPU provider with this many intra-op threads.

    Raises:
        UserError: the file is missing, damaged, or holds an operator that this build cannot run.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = logging.ERROR // 10
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no base class but Exception
        msg = f"{path}: ONNX Runtime cannot open it ({error}); help: the file may be damaged: quantize again"
        raise UserError(msg) from error


class Padded:
    """The layout ``[batch, length]``: shorter rows are filled up with the padding id and masked.

    Args:
        session: of the padded graph.
        pad_token_id: fills up.
        length: pads every batch to at least this length; 0 pads to the longest row.
    """

    def __init__(self, session: onnxruntime.InferenceSession, *, pad_token_id: int, length: int = 0) -> None:
        self.session = session
        self.inputs = tuple(entry.name for entry in session.get_inputs())
        self.pad_token_id = pad_token_id
        self._length = length

    def feed(self, rows: Rows) -> dict[str, Ids]:
        """Return the inputs, int64 [batch, length]."""
        length = max(self._length, *(len(row) for row in rows))
        ids = np.full((len(rows), length), self.pad_token_id, dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: arrays[name] for name in self.inputs}

    def run(self, rows: Rows) -> Logits:
        """Return the logits [texts, labels] of these rows computed in one batch."""
        return _logits(self.session, self.feed(rows))


class Packed:
    """The layout without padding: all rows' tokens one after the other (docs/architecture.md)."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session

    def feed(self, rows: Rows) -> dict[str, Ids]:
        """Return the four one-dimensional int64 inputs."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        first = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        segments = np.repeat(np.arange(len(rows), dtype=np.int64), lengths)
        return {
            "input_ids": np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]),
            "segment_ids": segments,
            "position_ids": np.arange(int(lengths.sum()), dtype=np.int64) - first[segments],
            "first_token": first,
        }

    def run(self, rows: Rows) -> Logits:
        """Return the logits [texts, labels] of these rows computed in one batch."""
        return _logits(self.session, self.feed(rows))


def _logits(session: onnxruntime.InferenceSession, feed: dict[str, Ids]) -> Logits:
    with FlushedDenormals():  # as the server does: a speed that is measured here is the speed there
        logits: Logits = session.run(["logits"], feed)[0]
    return logits


def provider_counts(session: onnxruntime.InferenceSession) -> dict[str, int]:
    """Return execution provider to how many nodes it runs, as ONNX Runtime recorded it."""
    parts = session.get_provider_graph_assignment_info()
    return dict(Counter(part.ep_name for part in parts for _ in part.get_nodes()))


def run_in_batches(runner: Runner, rows: Rows, *, size: int, order: Sequence[int] | None = None) -> Logits:
    """Return the logits of all rows, in the rows' order, computed ``size`` at a time.

    Args:
        runner: either layout.
        rows: token ids.
        size: texts a batch.
        order: which rows share a batch: cut into pieces of ``size``; as they stand unless given.
    """
    picks = list(range(len(rows))) if order is None else list(order)
    pieces = [runner.run([rows[index] for index in piece]) for piece in cut(picks, size)]
    logits = np.concatenate(pieces)
    return logits[np.argsort(picks)]


def cut(picks: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield pieces of ``size``, the last one shorter."""
    for begin in range(0, len(picks), size):
        yield picks[begin : begin + size]
