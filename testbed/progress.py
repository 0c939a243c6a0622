"""Progress of long work: a live board on a terminal, plain lines elsewhere. All of it goes to standard error."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

PLAIN_LINE_EVERY_S = 10.0

# One console for the whole process: two that draw on one terminal would overwrite each other.
_console = Console(stderr=True, highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """Print one line for people; above the board where one is drawn."""
    _console.print(line, markup=False)


class Progress:
    """One piece of work of a known number of steps; use it as a context manager.

    Args:
        title: what is done, such as ``train teacher``.
        total: how many steps; None where it is not known.
    """

    def __init__(self, title: str, *, total: int | None) -> None:
        self._title = title
        self._total = total
        self._done = 0
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=_console,
        )
        self._task = TaskID(0)
        self._begin_s = self._next_line_s = 0.0

    def __enter__(self) -> Self:
        self._task = self._bar.add_task(self._title, total=self._total, figures="")
        _board.add(self._bar)
        self._begin_s = time.monotonic()
        self._next_line_s = self._begin_s + PLAIN_LINE_EVERY_S
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _board.remove(self._bar)

    def advance(self, steps: int = 1, **figures: str) -> None:
        """Count steps; ``figures`` are shown beside the bar, already formatted with their units."""
        self._done += steps
        shown = "  ".join(f"{name} {value}" for name, value in figures.items())
        self._bar.update(self._task, advance=steps, figures=shown)
        now_s = time.monotonic()
        if not _console.is_terminal and now_s >= self._next_line_s:
            self._next_line_s = now_s + PLAIN_LINE_EVERY_S
            of_total = f"/{self._total}" if self._total else ""
            say(f"{self._title}: {self._done}{of_total}, {now_s - self._begin_s:.0f} s  {shown}".rstrip())


class Stages:
    """The table of a run's stages, drawn above the bars while the stages work; use it as a context manager."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._states = dict.fromkeys(names, "waiting")

    def __enter__(self) -> Self:
        _board.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _board.remove(self)

    def set(self, name: str, state: str) -> None:
        """Say where a stage stands: a line elsewhere than on a terminal, the table's row on one."""
        self._states[name] = state
        if not _console.is_terminal:
            number = list(self._states).index(name) + 1
            say(f"[{number}/{len(self._states)}] {name}: {state}")

    def __rich__(self) -> Table:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, state in self._states.items():
            table.add_row(name, state, style="dim" if state == "waiting" else None)
        return table


class _Board:
    """What is drawn at present: the stages' table and the bars, in the order in which they came."""

    def __init__(self) -> None:
        self._parts: list[RenderableType] = []
        self._live: Live | None = None

    def add(self, part: RenderableType) -> None:
        self._parts.append(part)
        if self._live is None and _console.is_terminal:
            self._live = Live(get_renderable=self._render, console=_console, refresh_per_second=4)
            self._live.start()

    def remove(self, part: RenderableType) -> None:
        if self._live is not None:
            self._live.refresh()
        self._parts.remove(part)
        if not self._parts and self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> Group:
        return Group(*self._parts)


_board = _Board()
