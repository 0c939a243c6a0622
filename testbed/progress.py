"""Progress of long work: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

PLAIN_LINE_EVERY_S = 10.0


class Progress:
    """One piece of work of a known number of steps; use it as a context manager.

    Args:
        title: what is done, such as ``train teacher``.
        total: how many steps; None where it is not known.
    """

    def __init__(self, title: str, *, total: int | None) -> None:
        self._console = Console(stderr=True)
        self._title = title
        self._total = total
        self._done = 0
        self._live = self._console.is_terminal
        self._next_line_s = 0.0
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            disable=not self._live,
        )
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._title, total=self._total, figures="")
        self._begin_s = time.monotonic()
        self._next_line_s = self._begin_s + PLAIN_LINE_EVERY_S
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, steps: int = 1, **figures: str) -> None:
        """Count steps; ``figures`` are shown beside the bar, already formatted with their units."""
        self._done += steps
        shown = "  ".join(f"{name} {value}" for name, value in figures.items())
        self._bar.update(self._task, advance=steps, figures=shown)
        now_s = time.monotonic()
        if not self._live and now_s >= self._next_line_s:
            self._next_line_s = now_s + PLAIN_LINE_EVERY_S
            of_total = f"/{self._total}" if self._total else ""
            say(f"{self._title}: {self._done}{of_total}, {now_s - self._begin_s:.0f} s  {shown}".rstrip())


def say(line: str) -> None:
    """Print one line for people, on standard error: standard output is for results."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(line, markup=False)
