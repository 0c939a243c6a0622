"""Gradients averaged over the processes, with the clock told when the backward pass itself is over."""

# No postponed annotations here: DistributedDataParallel checks the hook's annotations as objects.
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from train.clock import StepClock


def averaging(clock: StepClock) -> Callable[[Any, GradBucket], torch.futures.Future[Tensor]]:
    """Return a hook that averages a bucket of gradients over all processes.

    It sets the mark ``backward`` when the last bucket is ready: what the backward pass lasts beyond that is waiting for
    the other processes.
    """

    def average(group: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:  # noqa: ANN401 - DDP's own type
        if bucket.is_last():
            clock.mark("backward")
        return allreduce_hook(group, bucket)

    return average
