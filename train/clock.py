"""Where one step's time goes, part by part."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

PARTS = ("data_wait", "copy", "forward", "backward", "sync", "optimizer")
# On a GPU every 16th step is taken apart: it must wait for the device to end, which costs overlap.
GPU_SAMPLE_EVERY = 16


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step by part, and the whole of it; ``other_s`` is what no mark claimed."""

    wall_s: float
    parts_s: dict[str, float]

    @property
    def other_s(self) -> float:
        """Return the seconds between the last mark and the step's end."""
        return max(0.0, self.wall_s - sum(self.parts_s.values()))


@dataclass
class StepClock:
    """Marks the end of each part of a step.

    On a CPU it reads a monotonic clock. On a GPU, where work runs behind the program, it places CUDA events, on sampled
    steps only; the others have their wall time alone.

    Attributes:
        device: where the step runs.
        sampled: whether this step is taken apart.
        wall_s: of the last step that ended, as the program saw it.
    """

    device: torch.device
    sampled: bool = field(default=True, init=False)
    wall_s: float = field(default=0.0, init=False)
    _marks: list[tuple[str, float | torch.cuda.Event]] = field(default_factory=list, init=False)
    _begin_s: float = field(default=0.0, init=False)
    _last_end_s: float | None = field(default=None, init=False)

    def begin(self, step: int) -> None:
        """Start a step; on a CPU what the program did since the last step's end counts as this one's ``other``."""
        on_gpu = self.device.type == "cuda"
        self.sampled = not on_gpu or step % GPU_SAMPLE_EVERY == 0
        if on_gpu and self.sampled:
            torch.cuda.synchronize(self.device)
        self._begin_s = time.perf_counter()
        if self._last_end_s is not None and not on_gpu:
            self._begin_s = self._last_end_s
        self._marks = []
        self.mark("begin")

    def mark(self, part: str) -> None:
        """Say that ``part`` ends here; the time since the last mark is its own."""
        if self.device.type == "cpu":
            self._marks.append((part, time.perf_counter()))
        elif self.sampled:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._marks.append((part, event))

    def pause(self) -> None:
        """Say that what follows, such as saving a checkpoint, belongs to no step."""
        self._last_end_s = None

    def end(self) -> StepTimes | None:
        """End the step; None for a step that was not taken apart."""
        if self.sampled and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._last_end_s = time.perf_counter()
        self.wall_s = self._last_end_s - self._begin_s
        if not self.sampled:
            return None
        parts_s = dict.fromkeys(PARTS, 0.0)
        for (_, before), (part, after) in zip(self._marks, self._marks[1:], strict=False):
            parts_s[part] += _seconds_between(before, after)
        return StepTimes(wall_s=self.wall_s, parts_s=parts_s)


def _seconds_between(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    if isinstance(before, float):
        assert isinstance(after, float)
        return after - before
    assert isinstance(after, torch.cuda.Event)
    return float(before.elapsed_time(after)) / 1e3
