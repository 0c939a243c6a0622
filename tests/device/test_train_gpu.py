"""Training on a GPU: what a CPU cannot show. Needs one NVIDIA GPU; skipped aloud without it."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq
import pynvml
import pytest
import torch

from testbed.meter import Meter
from testbed.records import TrainingRun
from tests.tiny import write_checkpoint
from train.clock import GPU_SAMPLE_EVERY
from train.config import StudentConfig, TeacherConfig, TrainConfig
from train.precision import tf32_products
from train.roofline import copy_ceiling
from train.student import train_student
from train.teacher import train_teacher

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU that torch can use on this machine"),
]


def train(tmp_path: Path, dataset: Path, *, precision: str) -> TrainingRun:
    start = write_checkpoint(tmp_path / "start", num_layers=3, initializer_range=0.07)
    recipe = {"epochs": 6, "learning_rate": 5e-3}
    config = TrainConfig(
        max_length=32,
        token_budget=256,
        precision=precision,
        teacher=TeacherConfig(model=str(start), **recipe),
        student=StudentConfig(layers=(0, 2), **recipe),
    )
    run = train_teacher(config, dataset=dataset, folder=tmp_path / "teacher")
    train_student(config, dataset=dataset, teacher=tmp_path / "teacher", folder=tmp_path / "student")
    return run


@pytest.mark.parametrize("precision", ["auto", "fp16"])
def test_a_gpu_learns_and_says_where_its_steps_go(tmp_path: Path, tiny_dataset: Path, precision: str) -> None:
    run = train(tmp_path, tiny_dataset, precision=precision)
    assert run.accuracy.value > 0.9
    assert run.usage.device_s is not None
    assert run.memory is not None
    assert run.memory.measured_peak_bytes is not None
    assert run.clock_events is not None
    assert run.clock_events.num_samples
    assert run.clock_events.throttled_share is not None
    assert run.clock_events.max_sm_mhz is not None
    rows = pq.read_table(tmp_path / "teacher" / "steps.parquet").to_pylist()
    sampled = [row for row in rows if row["forward_s"] is not None]
    assert [row["step"] for row in sampled] == list(range(0, run.num_steps, GPU_SAMPLE_EVERY))
    split = run.step_split
    parts = split.data_wait_s + split.copy_s + split.forward_s + split.backward_s + split.optimizer_s + split.other_s
    assert parts == pytest.approx(split.wall_s, rel=0.03)


def test_copies_to_the_device_have_a_ceiling() -> None:
    rate = copy_ceiling(torch.device("cuda", 0))
    assert rate is not None
    assert rate.per_s > 1e9


def test_tf32_changes_products_and_only_where_it_is_allowed(tmp_path: Path, tiny_dataset: Path) -> None:
    gpu = torch.device("cuda", 0)
    if torch.cuda.get_device_capability(gpu) < (8, 0):
        pytest.skip("this GPU is older than TF32 (compute capability 8.0)")
    factors = torch.randn((2, 512, 512), device=gpu, generator=torch.Generator(gpu).manual_seed(0))
    exact = factors[0].double() @ factors[1].double()

    def largest_error(*, allowed: bool) -> float:
        with tf32_products(allowed, gpu):
            return float((factors[0] @ factors[1] - exact).abs().max())

    # TF32 keeps 10 bits of each factor, FP32 23.
    assert largest_error(allowed=True) > 10 * largest_error(allowed=False)
    start = write_checkpoint(tmp_path / "start", dropout=0.0)
    curves = []
    for allowed in (False, True):
        config = TrainConfig(
            max_length=32, precision="fp32", tf32=allowed, teacher=TeacherConfig(model=str(start), epochs=1)
        )
        folder = tmp_path / f"tf32-{allowed}"
        assert train_teacher(config, dataset=tiny_dataset, folder=folder).switches["tf32"] is allowed
        curves.append(pq.read_table(folder / "steps.parquet").column("loss").to_pylist())
    assert curves[0] != curves[1]
    assert curves[1] == pytest.approx(curves[0], rel=0.02)
    assert torch.get_float32_matmul_precision() == "highest"


def test_energy_is_read_from_the_counter_of_the_gpu_and_more_of_it_is_used_at_work() -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        pytest.skip(f"this GPU has no energy counter: {error}")
    limit_w = pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3
    factor = torch.randn((8192, 8192), device="cuda:0", dtype=torch.bfloat16)
    factor @ factor  # what the first product loads is not in the window
    torch.cuda.synchronize()
    meter = Meter(device=0).begin()
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s:
        for _ in range(20):
            factor @ factor
        torch.cuda.synchronize()
    used = meter.end()
    assert used.energy.method == "counter"
    assert used.energy.energy_j is not None
    assert used.device_s == pytest.approx(used.wall_s)
    # The counter moves in steps of a tenth of a second or so.
    assert 0.1 * limit_w < used.energy.energy_j / used.wall_s < 1.2 * limit_w
