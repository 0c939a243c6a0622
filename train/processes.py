"""One training in several processes: torchrun's environment, this process's device, sums over all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from testbed.errors import UserError
from testbed.machine import usable_cores
from train.clock import StepClock
from train.gradients import averaging

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; alone unless torchrun started it.

    Attributes:
        rank: its number.
        world_size: how many there are.
        local_rank: its number on this machine.
        device: where its model is: the GPU of that number, or the CPU.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the one that writes files and shows progress."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other."""
        return self.world_size == 1

    @property
    def nvml_index(self) -> int | None:
        """NVML's number of this process's GPU, which CUDA_VISIBLE_DEVICES may number otherwise; None on a CPU."""
        if self.device.type != "cuda":
            return None
        return torch.cuda._get_nvml_device_index(self.device)  # noqa: SLF001 - the map is not public

    def working_dtype(self, precision: str) -> torch.dtype:
        """Return the type of the working weights (`train.weights`).

        Narrow ones are for one process on a CPU, where they were measured to pay; elsewhere autocast does the casting,
        so that gradients are averaged in FP32.
        """
        narrow = self.alone and self.device.type == "cpu" and precision == "bf16"
        return torch.bfloat16 if narrow else torch.float32

    def total(self, figures: Sequence[float]) -> list[float]:
        """Return the sums of these figures over all processes."""
        if self.alone:
            return list(figures)
        sums = torch.tensor(figures, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return [float(value) for value in sums]

    def sum_into(self, figures: Tensor) -> Tensor:
        """Replace the tensor by its sum over all processes, without waiting for a GPU."""
        if not self.alone:
            dist.all_reduce(figures)
        return figures

    def from_main(self, make: T | None) -> T:
        """Return the main process's object everywhere."""
        if self.alone:
            assert make is not None
            return make
        box = [make]
        dist.broadcast_object_list(box, src=0)
        assert box[0] is not None
        return box[0]

    def gather(self, own: T) -> list[T]:
        """Return every process's object, by rank, everywhere."""
        if self.alone:
            return [own]
        found: list[T | None] = [None] * self.world_size
        dist.all_gather_object(found, own)
        return [item for item in found if item is not None]

    @property
    def num_nodes(self) -> int:
        """How many machines (torchrun's nodes) the processes run on."""
        return self.world_size // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if not self.alone else 1

    def wait(self) -> None:
        """Wait until every process is here."""
        if not self.alone:
            dist.barrier()

    def share_gradients(self, model: nn.Module, clock: StepClock) -> nn.Module:
        """Return the whole model with its gradients averaged over the processes during the backward pass."""
        devices = [self.device] if self.device.type == "cuda" else None
        shared = DistributedDataParallel(model, device_ids=devices)
        shared.register_comm_hook(None, averaging(clock))
        return shared


def join() -> Processes:
    """Return this process's place; under torchrun the process group is set up at the first call.

    A process alone uses every core that it may; under torchrun the cores are divided, unless OMP_NUM_THREADS says else.

    Raises:
        UserError: more processes than GPUs.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu and local_rank >= torch.cuda.device_count():
        msg = (
            f"process {local_rank} has no GPU of its own: this machine shows {torch.cuda.device_count()}; "
            "help: start as many processes as there are GPUs, or hide them (CUDA_VISIBLE_DEVICES=) to train on CPUs"
        )
        raise UserError(msg)
    if on_gpu:
        torch.cuda.set_device(device)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, int(usable_cores()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    if world_size > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo")
    return Processes(rank=int(os.environ.get("RANK", "0")), world_size=world_size, local_rank=local_rank, device=device)


def leave() -> None:
    """End the process group, if there is one: its threads must not outlive the interpreter, which then aborts."""
    if dist.is_initialized():
        dist.destroy_process_group()
