"""One raw row a query: the only source of every percentile. Written as Parquet by the generator, read by the judge."""

from __future__ import annotations

import errno
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from testbed.records import write_atomically

SCHEMA = pa.schema(
    [
        pa.field("query", pa.int64()),
        pa.field("text", pa.int64()),
        pa.field("scheduled_s", pa.float64()),
        pa.field("sent_s", pa.float64()),
        pa.field("first_byte_s", pa.float64()),
        pa.field("done_s", pa.float64()),
        pa.field("status", pa.int16()),
        pa.field("error", pa.string()),
        pa.field("bytes_sent", pa.int32()),
        pa.field("bytes_received", pa.int32()),
        pa.field("server_timing", pa.string()),
    ]
)


@dataclass(slots=True)
class Row:
    """One query. Seconds count from the run's first moment.

    Attributes:
        query: index in the schedule.
        text: index of its (first) text in the file of texts.
        scheduled_s: when it was to be sent.
        sent_s: when it was.
        first_byte_s: when the answer's headers were in; None without an answer.
        done_s: when the answer's last byte was in, or the query was given up.
        status: HTTP status, 0 without an answer.
        error: None for a right answer, else its kind: ``http_503:queue_full``, ``timeout``, ``connection``, …
        bytes_sent: of the body.
        bytes_received: of the body.
        server_timing: the ``Server-Timing`` header as it came.
    """

    query: int
    text: int
    scheduled_s: float
    sent_s: float = 0.0
    first_byte_s: float | None = None
    done_s: float = 0.0
    status: int = 0
    error: str | None = "not_done"
    bytes_sent: int = 0
    bytes_received: int = 0
    server_timing: str | None = None


@dataclass(frozen=True)
class Rows:
    """The raw rows of one run as columns, each of shape [queries].

    ``latency_s`` counts from the scheduled time and is +infinity where there is no right answer.
    """

    text: NDArray[np.int64]
    scheduled_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    done_s: NDArray[np.float64]
    ok: NDArray[np.bool_]
    errors: tuple[str | None, ...]
    server_timing: tuple[str | None, ...]

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Scheduled time to the last byte; +infinity for a miss."""
        return np.where(self.ok, self.done_s - self.scheduled_s, np.inf)

    @property
    def lag_s(self) -> NDArray[np.float64]:
        """How late each query was sent."""
        return self.sent_s - self.scheduled_s

    def __len__(self) -> int:
        return len(self.scheduled_s)


def error_kind(error: Exception) -> str:
    """Return the name of a failed connection, by its errno where it has one (``connection:ECONNREFUSED``)."""
    number = error.errno if isinstance(error, OSError) else None
    return f"connection:{errno.errorcode.get(number or 0, type(error).__name__)}"


def write_rows(rows: list[Row], path: Path) -> None:
    """Write rows in the order of the schedule, atomically."""
    ordered = sorted(rows, key=lambda row: row.query)
    columns = {field.name: [getattr(row, field.name) for row in ordered] for field in fields(Row)}
    table = pa.table(columns, schema=SCHEMA)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def read_rows(path: Path) -> Rows:
    """Return the rows of a Parquet file that ``write_rows`` wrote."""
    table = pq.read_table(path)
    errors = tuple(table["error"].to_pylist())
    return Rows(
        text=table["text"].to_numpy(),
        scheduled_s=table["scheduled_s"].to_numpy(),
        sent_s=table["sent_s"].to_numpy(),
        done_s=table["done_s"].to_numpy(),
        ok=np.asarray([error is None for error in errors], dtype=np.bool_),
        errors=errors,
        server_timing=tuple(table["server_timing"].to_pylist()),
    )
