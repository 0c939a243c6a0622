"""One row a step: to steps.parquet, to TensorBoard, and to the eye."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet
from torch.utils.tensorboard import SummaryWriter

from testbed.progress import Progress
from testbed.records.files import write_atomically
from testbed.records.training import StepSplit
from train.clock import PARTS

SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in ("step", "epoch", "num_texts", "num_tokens", "num_padded_tokens")),
        *((name, pa.float64()) for name in ("model_flops", "loss", "learning_rate", "wall_s", "other_s")),
        *((f"{part}_s", pa.float64()) for part in PARTS),
    ]
)
# Live figures look back over this many steps.
RECENT_STEPS = 20


class Journal:
    """The steps of one training, and what is shown of them.

    Args:
        title: such as ``train teacher``.
        total_steps: of the whole training.
        gemm_flops_per_s: measured peak, for MFU.
        events: folder of the TensorBoard events; None in a process that writes nothing.
    """

    def __init__(self, title: str, *, total_steps: int, gemm_flops_per_s: float, events: Path | None) -> None:
        self.rows: list[dict[str, Any]] = []
        self._gemm_flops_per_s = gemm_flops_per_s
        self._events = events
        self._writer: SummaryWriter | None = None
        self._progress = Progress(title, total=total_steps) if events else None

    def __enter__(self) -> Self:
        if self._events:
            # What an earlier attempt showed of the steps that come now is to be forgotten.
            self._writer = SummaryWriter(str(self._events), purge_step=len(self.rows))
        if self._progress:
            self._progress.__enter__()
            if self.rows:
                self._progress.advance(len(self.rows))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.__exit__(kind, error, trace)
        if self._writer:
            self._writer.close()

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a row with the columns of ``SCHEMA``, and show it."""
        self.rows.append(dict(row))
        if self._progress is None or self._writer is None:
            return
        figures = self._recent()
        self._progress.advance(
            loss=f"{row['loss']:.3f}",
            rate=f"{figures['texts_per_s']:,.0f} texts/s {figures['tokens_per_s']:,.0f} tokens/s",
            mfu=f"{figures['mfu']:.0%}",
            waiting=f"{figures['data_wait_share']:.1%}",
        )
        for name, value in {"loss": row["loss"], "learning_rate": row["learning_rate"], **figures}.items():
            self._writer.add_scalar(f"train/{name}", value, row["step"])
        for part in (*PARTS, "other"):
            if row[f"{part}_s"] is not None:
                self._writer.add_scalar(f"step/{part}_s", row[f"{part}_s"], row["step"])

    def add_epoch(self, *, step: int, dev_accuracy: float) -> None:
        """Show the accuracy after an epoch."""
        if self._writer:
            self._writer.add_scalar("dev/accuracy", dev_accuracy, step)

    def write(self, path: Path) -> Path:
        """Write the rows so far as Parquet; returns the path."""
        table = pa.Table.from_pylist(self.rows, schema=SCHEMA)
        write_atomically(path, lambda temporary: pa.parquet.write_table(table, temporary))
        return path

    def split(self) -> StepSplit:
        """Return the sums of the parts over the steps that were taken apart."""
        measured = [row for row in self.rows if row["forward_s"] is not None]
        sums = {f"{part}_s": sum(row[f"{part}_s"] for row in measured) for part in (*PARTS, "other")}
        return StepSplit(num_steps=len(measured), wall_s=sum(row["wall_s"] for row in measured), **sums)

    def _recent(self) -> dict[str, float]:
        rows = self.rows[-RECENT_STEPS:]
        wall_s = sum(row["wall_s"] for row in rows)
        measured = [row for row in rows if row["data_wait_s"] is not None]
        measured_s = sum(row["wall_s"] for row in measured)
        return {
            "texts_per_s": sum(row["num_texts"] for row in rows) / wall_s,
            "tokens_per_s": sum(row["num_tokens"] for row in rows) / wall_s,
            "mfu": sum(row["model_flops"] for row in rows) / wall_s / self._gemm_flops_per_s,
            "data_wait_share": sum(row["data_wait_s"] for row in measured) / measured_s if measured_s else 0.0,
        }
