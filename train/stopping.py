"""SIGTERM and Ctrl-C ask the loop to stop after its step, so that it can save first."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from testbed.errors import UserError


class StoppedError(UserError):
    """A training that was asked to stop, and saved a checkpoint."""


class StopRequest:
    """Notes the signals while it is entered; elsewhere than in the main thread it notes none.

    Attributes:
        signal_name: of the first one, or None.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal_name = self.signal_name or signal.Signals(number).name
