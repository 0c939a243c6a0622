"""The record of one training run: cost, speed, where a step's time went, and the accuracy it bought."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from testbed.records.base import Accuracy, Frozen, Record, Sha256, Usage


class StepSplit(Frozen):
    """Seconds of the measured steps, by part; the parts add up to ``wall_s`` within 3 %.

    Attributes:
        num_steps: steps that were measured.
        data_wait_s: waiting for the next batch.
        copy_s: host to device.
        forward_s: forward pass and loss (for a student: its own and the teacher's).
        backward_s: backward pass.
        sync_s: gradient synchronisation between processes.
        optimizer_s: clipping, optimiser and scheduler step.
        other_s: the rest of the loop's body.
        wall_s: the whole of these steps.
    """

    num_steps: int
    data_wait_s: float
    copy_s: float
    forward_s: float
    backward_s: float
    sync_s: float
    optimizer_s: float
    other_s: float
    wall_s: float


class Epoch(Frozen):
    """One pass over the training split. ``dev_accuracy`` is the share of correct rows of the dev split."""

    index: int
    train_loss: float
    dev_accuracy: float
    wall_s: float


class ModelShape(Frozen):
    """The model's size. ``num_parameters`` counts all, embeddings included."""

    architecture: str
    num_parameters: int
    num_layers: int
    hidden_size: int
    num_labels: int
    max_length: int


class MemoryLedger(Frozen):
    """Bytes by use: predicted before the run, and the peak that was measured.

    Attributes:
        parameters_bytes: weights.
        gradients_bytes: gradients.
        optimizer_bytes: optimiser states.
        activations_bytes: kept for the backward pass at the largest batch.
        predicted_bytes: their sum with the process's own base.
        measured_peak_bytes: resident set (CPU) or device memory (GPU).
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    predicted_bytes: int
    measured_peak_bytes: int | None


class RooflinePoint(Frozen):
    """One part of the training step under the machine's ceilings.

    Attributes:
        part: ``step`` is the whole of it, waiting for data included.
        flops: multiply-adds times 2 of all measured steps.
        moved_bytes: that the part's operators read and wrote in all measured steps, each operator's inputs and outputs
            counted once; caches serve some of them, so that ``bytes_per_s`` may pass the triad's rate.
        seconds: of all measured steps.
        flops_per_s, bytes_per_s: achieved.
        flops_per_byte: arithmetic intensity.
        share_of_gemm, share_of_triad: of the measured ceilings.
        bound: ``data`` where a fifth of the step or more is waiting for the next batch, else the nearer ceiling.
    """

    part: Literal["forward", "backward", "optimizer", "step"]
    flops: float
    moved_bytes: float
    seconds: float = Field(gt=0)
    flops_per_s: float
    bytes_per_s: float
    flops_per_byte: float
    share_of_gemm: float
    share_of_triad: float
    bound: Literal["compute", "memory", "data"]


class TrainingRoofline(Frozen):
    """Where a training's steps stand under ceilings that were measured in the same process, before its first step.

    Attributes:
        gemm_flops_per_s: best square product of the training's dtype and threads, all processes together.
        triad_bytes_per_s: a = b + s × c by the same threads, all processes together.
        points: forward, backward, optimizer, step.
        bound: the step's.
        reason: the figures that led to it.
    """

    gemm_flops_per_s: float
    triad_bytes_per_s: float
    points: tuple[RooflinePoint, ...]
    bound: Literal["compute", "memory", "data"]
    reason: str


class ClockEvents(Frozen):
    """What NVML said about the GPU's clocks, sampled during the training; null with a reason where there is no GPU.

    Attributes:
        num_samples: how often it was asked.
        interval_s: between two samples.
        shares: reason to the share of samples in which it held the clocks back, such as ``sw_power_cap``.
        throttled_share: share of samples with a reason that slows work (power, heat, brake; not idle, not a setting).
        mean_sm_mhz, min_sm_mhz: clock of the processors.
        max_sm_mhz: the highest that the GPU can be set to.
        reason: why there is no figure.
    """

    num_samples: int | None = None
    interval_s: float | None = None
    shares: dict[str, float] = Field(default_factory=dict)
    throttled_share: float | None = None
    mean_sm_mhz: float | None = None
    min_sm_mhz: float | None = None
    max_sm_mhz: float | None = None
    reason: str = ""


class TrainingRun(Record):
    """One training of a teacher or a student.

    Attributes:
        stage: which of the two.
        initialised_from: local folder, hub id, built-in name, or ``teacher layers [0, 2, 5]``.
        model: its size.
        usage: the whole stage, from loading to the saved checkpoint, summed over all processes (wall_s: the longest).
        phases: the same by phase (``load``, ``tokenize``, ``train``, ``evaluate``, ``save``).
        dtype: arithmetic of the forward and backward pass.
        dtype_reason: why that one.
        num_steps, num_samples, num_tokens: of the training phase; tokens are real ones.
        num_padded_tokens: tokens computed, padding counted.
        num_truncated: training texts longer than ``max_length``.
        samples_per_s, tokens_per_s: of the training phase, evaluation left out.
        model_flops: forward and backward multiply-adds times 2 of the training phase, padding counted.
        gemm_flops_per_s: measured peak of the same dtype and thread count.
        mfu: model_flops / (training seconds × gemm_flops_per_s).
        step_split: where the steps' time went.
        memory: the memory ledger.
        epochs: one each.
        accuracy: on the test split.
        predictions_sha256: hash of the test logits file beside the checkpoint.
        checkpoint: file name to sha256.
        num_processes: that shared each batch.
        num_nodes: machines (torchrun's nodes) that they ran on.
        parallel: how they shared the model: ``none`` for one process, ``ddp`` whole copies, ``fsdp`` sharded.
        roofline: the step's parts under the measured ceilings; None in records of before it was measured.
        clock_events: what held a GPU's clocks back; None in records of before it was measured.
        resumed_from_step: the step after which an earlier attempt was gone on from; None for one attempt.
        switches: further settings that change speed: ``threads``, ``compile``, ``tf32``.
    """

    kind: Literal["TrainingRun"] = "TrainingRun"
    stage: Literal["teacher", "student"]
    initialised_from: str
    model: ModelShape
    seed: int
    usage: Usage
    phases: dict[str, Usage]
    dtype: str
    dtype_reason: str
    num_steps: int
    num_samples: int
    num_tokens: int
    num_padded_tokens: int
    num_truncated: int
    samples_per_s: float
    tokens_per_s: float
    model_flops: float
    gemm_flops_per_s: float | None
    mfu: float | None = Field(default=None, ge=0)
    step_split: StepSplit
    memory: MemoryLedger | None = None
    epochs: tuple[Epoch, ...]
    accuracy: Accuracy
    checkpoint: dict[str, Sha256]
    num_processes: int = 1
    num_nodes: int = 1
    parallel: Literal["none", "ddp", "fsdp"] = "none"
    roofline: TrainingRoofline | None = None
    clock_events: ClockEvents | None = None
    resumed_from_step: int | None = None
    switches: dict[str, JsonValue] = Field(default_factory=dict)
