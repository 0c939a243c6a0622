"""Clock events: every bit has its name, shares are of samples; and which GPU a process has."""

from __future__ import annotations

import pynvml
import pytest
import torch

from testbed.errors import UserError
from train.clocks import REASONS, ClockWatch, decode, summarise
from train.processes import Processes, join


def test_the_bits_are_nvmls_own() -> None:
    named = {
        "gpu_idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "applications_clocks_setting": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hw_slowdown": pynvml.nvmlClocksThrottleReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "sw_thermal_slowdown": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hw_thermal_slowdown": pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "hw_power_brake_slowdown": pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "display_clock_setting": pynvml.nvmlClocksEventReasonDisplayClockSetting,
    }
    assert {name: bit for bit, name in REASONS.items()} == named


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, ()),
        (0x4, ("sw_power_cap",)),
        (0x61, ("gpu_idle", "sw_thermal_slowdown", "hw_thermal_slowdown")),
        (0x1004, ("sw_power_cap", "unknown_0x1000")),
    ],
)
def test_a_mask_is_decoded(bits: int, names: tuple[str, ...]) -> None:
    assert decode(bits) == names


def test_shares_are_of_samples_and_idle_is_no_throttling() -> None:
    events = summarise([(0x1, 1000), (0x4, 1400), (0x44, 1200), (0, 1980)], interval_s=0.5, max_sm_mhz=1980)
    assert events.shares == {"gpu_idle": 0.25, "sw_power_cap": 0.5, "hw_thermal_slowdown": 0.25}
    assert events.throttled_share == 0.5
    assert (events.mean_sm_mhz, events.min_sm_mhz, events.max_sm_mhz) == (1395, 1000, 1980)


def test_without_a_gpu_there_is_a_reason_and_no_figure() -> None:
    with ClockWatch(None) as watch:
        pass
    assert watch.events.throttled_share is None
    assert watch.events.reason == "no GPU: the training ran on a CPU"


def test_the_counters_read_are_those_of_the_gpu_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    second = Processes(rank=1, world_size=2, local_rank=1, device=torch.device("cuda", 1))
    assert second.nvml_index == 1
    first = Processes(rank=0, world_size=2, local_rank=0, device=torch.device("cuda", 0))
    assert first.nvml_index == 3
    assert Processes(rank=0, world_size=1, local_rank=0, device=torch.device("cpu")).nvml_index is None


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(UserError, match="process 1 has no GPU of its own: this machine shows 1; help: start as many"):
        join()
