"""What holds a GPU's clocks back while it trains, asked of NVML now and then by a thread of its own."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import pynvml

from testbed.records.training import ClockEvents

INTERVAL_S = 0.5
# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReasons).
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
THROTTLES = {
    "sw_power_cap",
    "hw_slowdown",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
}


def decode(bits: int) -> tuple[str, ...]:
    """Return the reasons that a bit mask names; a bit that is not known here is ``unknown_0x…``."""
    known = [name for bit, name in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    return (*known, *([f"unknown_{rest:#x}"] if rest else []))


def summarise(samples: list[tuple[int, int]], *, interval_s: float, max_sm_mhz: float) -> ClockEvents:
    """Return the record of samples of (reasons' bits, MHz of the processors)."""
    if not samples:
        return ClockEvents(reason="the training was over before the first sample")
    reasons = [decode(bits) for bits, _ in samples]
    clocks = [mhz for _, mhz in samples]
    names = sorted({name for each in reasons for name in each})
    return ClockEvents(
        num_samples=len(samples),
        interval_s=interval_s,
        shares={name: sum(name in each for each in reasons) / len(samples) for name in names},
        throttled_share=sum(bool(THROTTLES & set(each)) for each in reasons) / len(samples),
        mean_sm_mhz=sum(clocks) / len(clocks),
        min_sm_mhz=min(clocks),
        max_sm_mhz=max_sm_mhz,
    )


class ClockWatch:
    """Samples while it is entered; ``events`` holds the record afterwards.

    Args:
        device: index of the GPU; None on a CPU, where nothing is sampled.
    """

    def __init__(self, device: int | None) -> None:
        self.events = ClockEvents(reason="no GPU: the training ran on a CPU")
        self._device = device
        self._over = threading.Event()
        self._samples: list[tuple[int, int]] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._device is None:
            return self
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(self._device)
            self._max_sm_mhz = float(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError as error:
            self.events = ClockEvents(reason=f"NVML: {error}")
            return self
        self._thread = threading.Thread(target=self._watch, args=(handle,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        self._over.set()
        self._thread.join()
        if self._samples:
            self.events = summarise(self._samples, interval_s=INTERVAL_S, max_sm_mhz=self._max_sm_mhz)

    def _watch(self, handle: object) -> None:
        try:
            while True:
                bits = int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
                mhz = int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
                self._samples.append((bits, mhz))
                if self._over.wait(INTERVAL_S):
                    return
        except pynvml.NVMLError as error:
            self.events = ClockEvents(reason=f"NVML: {error}")
