"""A begin/end window that gives one Usage: wall, CPU, memory, device time, energy. What is not measured is null."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pynvml

from testbed.records.base import Energy, Usage

POWERCAP = Path("/sys/class/powercap")


def process_tree(pid: int) -> list[psutil.Process]:
    """Return the process and its living descendants; empty when it has ended."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def tree_cpu_s(pid: int) -> float:
    """Return user + system seconds of a process tree, ended and reaped children included."""
    total = 0.0
    for process in process_tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def tree_rss_bytes(pid: int) -> int:
    """Return the resident set of a process tree, now; pages that processes share count once for each."""
    return sum(_status_kib(process.pid, "VmRSS") for process in process_tree(pid)) * 1024


@dataclass
class Meter:
    """Measures what a process tree uses between ``begin`` and ``end``; also a context manager.

    Args:
        pid: root of the tree; this process unless given.
        device: index of the GPU whose time, memory and energy belong to the window; None for a CPU window.
        assumed_watts: the price book's watts; used only where no counter exists, and marked as an estimate.
        assumed_from: where those watts come from.
    """

    pid: int = field(default_factory=lambda: psutil.Process().pid)
    device: int | None = None
    assumed_watts: float | None = None
    assumed_from: str | None = None
    usage: Usage | None = field(default=None, init=False)

    def begin(self) -> Self:
        """Open the window; the kernel's peak-RSS marks are reset where that is allowed."""
        for process in process_tree(self.pid):
            _reset_peak_rss(process.pid)
        self._switches = _tree_switches(self.pid)
        self._energy_uj = _rapl_uj() if self.device is None else None
        self._energy_mj = _nvml_energy_mj(self.device)
        self._cpu_s = tree_cpu_s(self.pid)
        self._begin_s = time.monotonic()
        return self

    def end(self) -> Usage:
        """Close the window and return what it used."""
        wall_s = time.monotonic() - self._begin_s
        self.usage = Usage(
            wall_s=wall_s,
            cpu_s=max(0.0, tree_cpu_s(self.pid) - self._cpu_s),
            device_s=None if self.device is None else wall_s,
            energy=self._energy(wall_s),
            peak_rss_bytes=_tree_peak_rss_bytes(self.pid) or None,
            peak_device_bytes=_nvml_used_bytes(self.device),
            context_switches=max(0, _tree_switches(self.pid) - self._switches),
        )
        return self.usage

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _energy(self, wall_s: float) -> Energy:
        counted_mj = _nvml_energy_mj(self.device)
        if self._energy_mj is not None and counted_mj is not None:
            return Energy(energy_j=(counted_mj - self._energy_mj) / 1e3, method="counter", reason="GPU only")
        counted_uj = _rapl_uj() if self.device is None else None
        if self._energy_uj is not None and counted_uj is not None and counted_uj >= self._energy_uj:
            return Energy(energy_j=(counted_uj - self._energy_uj) / 1e6, method="rapl", reason="CPU packages")
        if self.assumed_watts is not None:
            source = f"{self.assumed_watts:g} W for the whole window, from {self.assumed_from or 'the caller'}"
            return Energy(energy_j=self.assumed_watts * wall_s, method="estimate", reason=source)
        return Energy(reason="no energy counter (NVML, powercap) on this machine and no watts in the price book")


def _status_kib(pid: int, key: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _reset_peak_rss(pid: int) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # without the right to reset it, the peak is the process's whole life's: an upper bound


def _tree_peak_rss_bytes(pid: int) -> int:
    return sum(_status_kib(process.pid, "VmHWM") for process in process_tree(pid)) * 1024


def _tree_switches(pid: int) -> int:
    total = 0
    for process in process_tree(pid):
        try:
            switches = process.num_ctx_switches()
        except psutil.NoSuchProcess:
            continue
        total += switches.voluntary + switches.involuntary
    return total


def _rapl_uj() -> int | None:
    counters = sorted(POWERCAP.glob("intel-rapl:?/energy_uj"))
    try:
        return sum(int(counter.read_text()) for counter in counters) if counters else None
    except OSError:
        return None


def _nvml_energy_mj(device: int | None) -> int | None:
    if device is None:
        return None
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(device)))
    except pynvml.NVMLError:
        return None


def _nvml_used_bytes(device: int | None) -> int | None:
    if device is None:
        return None
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(device)).used)
    except pynvml.NVMLError:
        return None
