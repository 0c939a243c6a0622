"""Two processes that share each batch train as one does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from testbed.errors import UserError
from testbed.records import TrainingRun, load_as
from tests.tiny import write_checkpoint
from train.config import TeacherConfig, TrainConfig
from train.launch import launch
from train.teacher import train_teacher

pytestmark = pytest.mark.integration


def config_for(model: Path, **changes: object) -> TrainConfig:
    teacher = TeacherConfig(model=str(model), epochs=5, learning_rate=3e-3)
    return TrainConfig(max_length=32, token_budget=512, precision="fp32", teacher=teacher, **changes)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_give_the_loss_curve_of_one(tmp_path: Path, tiny_dataset: Path, parallel: str) -> None:
    # Dropout masks depend on the process's number, so that curves can be compared only without dropout.
    config = config_for(write_checkpoint(tmp_path / "start", dropout=0.0), parallel=parallel)
    one = train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "one")
    two = launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=tmp_path / "two")
    curves = [pq.read_table(tmp_path / name / "steps.parquet").column("loss").to_numpy() for name in ("one", "two")]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-3, atol=1e-4)
    assert curves[0][-1] < 0.9 * curves[0][0]
    assert two.num_processes == 2
    assert (one.parallel, two.parallel, two.num_nodes) == ("none", parallel, 1)
    assert one.memory is not None
    assert two.memory is not None
    shards = {"ddp": 1, "fsdp": 2}[parallel]
    assert two.memory.optimizer_bytes == pytest.approx(one.memory.optimizer_bytes / shards, abs=8)
    assert two.roofline is not None
    assert two.roofline.points[-1].flops == pytest.approx(two.model_flops, rel=0.1)
    assert two.num_samples == one.num_samples
    assert two.num_tokens == one.num_tokens
    assert one.step_split.sync_s == 0
    assert two.step_split.sync_s > 0
    logits = [np.load(tmp_path / name / "test_logits.npy") for name in ("one", "two")]
    np.testing.assert_allclose(logits[1], logits[0], atol=0.02)


@pytest.mark.long
def test_a_killed_sharded_training_goes_on_to_the_same_weights(tmp_path: Path, tiny_dataset: Path) -> None:
    start = write_checkpoint(tmp_path / "start", dropout=0.0)
    config = config_for(start, parallel="fsdp", checkpoint_every_steps=2)
    launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=tmp_path / "whole" / "teacher")
    section, folder = tmp_path / "train.json", tmp_path / "killed" / "teacher"
    section.write_text(config.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "train"]
    command += ["teacher", str(section), "--dataset", str(tiny_dataset), "--folder", str(folder)]
    training = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    while not list(folder.parent.glob(".teacher.training/*/checkpoints/checkpoint-*")):
        assert training.poll() is None
        time.sleep(0.02)
    # torchrun puts its workers into sessions of their own: killed alone, it would leave them to finish.
    processes = [psutil.Process(training.pid), *psutil.Process(training.pid).children(recursive=True)]
    for process in processes:
        process.kill()
    psutil.wait_procs(processes)
    resumed = launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=folder)
    assert resumed.resumed_from_step
    whole, killed = (load_file(path / "teacher" / "model.safetensors") for path in (tmp_path / "whole", folder.parent))
    assert whole.keys() == killed.keys()
    for name, weights in whole.items():
        assert torch.equal(weights, killed[name]), name


# What `breakeven train teacher EXPERIMENT --nproc 2` does, with its answer to SIGTERM.
LAUNCHING = """
import signal, sys
from pathlib import Path
from train.config import TrainConfig
from train.launch import launch

section, dataset, folder = map(Path, sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
config = TrainConfig.model_validate_json(section.read_text())
launch("teacher", config, num_processes=2, dataset=dataset, folder=folder, slow_storage_s=0.1)
"""


@pytest.mark.long
def test_stopping_the_command_stops_its_processes_after_they_have_saved(tmp_path: Path, tiny_dataset: Path) -> None:
    config = config_for(write_checkpoint(tmp_path / "start", dropout=0.0), checkpoint_every_steps=2)
    section, folder = tmp_path / "train.json", tmp_path / "teacher"
    section.write_text(config.model_dump_json(), encoding="utf-8")
    command = subprocess.Popen(
        [sys.executable, "-c", LAUNCHING, str(section), str(tiny_dataset), str(folder)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    while not (found := list(tmp_path.glob(".teacher.training/*/checkpoints/checkpoint-*"))):
        assert command.poll() is None
        time.sleep(0.02)
    processes = psutil.Process(command.pid).children(recursive=True)
    command.terminate()
    assert command.wait(timeout=60) == 143
    assert [process for process in processes if process.is_running()] == []
    assert not folder.exists()
    assert max(tmp_path.glob(".teacher.training/*/checkpoints/checkpoint-*")) > max(found)
    resumed = launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=folder)
    assert resumed.resumed_from_step


@pytest.mark.long
def test_two_nodes_of_one_process_train_as_one(tmp_path: Path, tiny_dataset: Path) -> None:
    config = config_for(write_checkpoint(tmp_path / "start", dropout=0.0))
    train_teacher(config, dataset=tiny_dataset, folder=tmp_path / "one")
    section = tmp_path / "train.json"
    section.write_text(config.model_dump_json(), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    training = ["-m", "train", "teacher", str(section), "--dataset", str(tiny_dataset), "--folder"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    # On one machine the two share a disk; each node works in a folder of its own, as on machines of their own.
    nodes = [
        subprocess.Popen(
            [*command, "--node-rank", str(rank), *training, str(tmp_path / f"node-{rank}" / "teacher")],
            env=environment,
        )
        for rank in range(2)
    ]
    assert [node.wait(timeout=300) for node in nodes] == [0, 0]
    record = load_as(TrainingRun, tmp_path / "node-0" / "teacher" / "record.json")
    assert (record.num_processes, record.num_nodes, record.parallel) == (2, 2, "ddp")
    curves = [
        pq.read_table(folder / "steps.parquet").column("loss").to_numpy()
        for folder in (tmp_path / "one", tmp_path / "node-0" / "teacher")
    ]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-3, atol=1e-4)
    assert not (tmp_path / "node-1" / "teacher").exists()


def test_a_failure_in_the_processes_is_one_error(tmp_path: Path, tiny_dataset: Path) -> None:
    config = config_for(tmp_path / "nowhere")
    with pytest.raises(UserError, match="training the teacher in 2 processes failed"):
        launch("teacher", config, num_processes=2, dataset=tiny_dataset, folder=tmp_path / "two")
