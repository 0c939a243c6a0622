"""The section ``train:`` of an experiment."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from testbed.records.base import Frozen

PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]


class Recipe(Frozen):
    """How one model is optimised: AdamW, linear warm-up, linear decay to 0.

    Attributes:
        epochs: passes over the training split.
        learning_rate: its peak.
        weight_decay: of weight matrices; none on embeddings, biases and normalisation weights.
        warmup_share: share of all steps over which the learning rate rises.
        max_grad_norm: gradients are scaled down to this norm.
        class_weights: ``balanced`` weighs a text by the inverse frequency of its label.
    """

    epochs: int = Field(default=4, ge=1)
    learning_rate: float = Field(default=2e-4, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    class_weights: Literal["none", "balanced"] = "none"


class TeacherConfig(Recipe):
    """The teacher: a pretrained model, fine-tuned.

    Attributes:
        model: ``minilm-l6``, ``mpnet-base``, a local Hugging Face folder, or a hub id.
    """

    model: str = "minilm-l6"


class StudentConfig(Recipe):
    """The student: fewer layers, taught by the teacher.

    The loss is ``hard_weight`` × cross-entropy with the labels + ``soft_weight`` × temperature² × KL divergence from
    the teacher's distribution at that temperature (Hinton et al. 2015) + ``hidden_weight`` × mean squared difference
    from the teacher's hidden states after the chosen layers. All three at hard 1, soft 0, hidden 0 is the honest
    control: the same student without its teacher.

    Attributes:
        layers: teacher layers, from 0, that the student starts from; not used where ``model`` is given.
        model: a pretrained model to start from instead, named as for the teacher; it brings its own tokenizer, so
            ``hidden_weight`` must be 0.
        temperature: of the soft targets.
        hard_weight: of the labels.
        soft_weight: of the teacher's distribution.
        hidden_weight: of the teacher's hidden states.
    """

    epochs: int = Field(default=6, ge=1)
    learning_rate: float = Field(default=3e-4, gt=0)
    layers: tuple[int, ...] = Field(default=(0, 2, 5), min_length=1)
    model: str | None = None
    temperature: float = Field(default=2.0, gt=0)
    hard_weight: float = Field(default=0.5, ge=0)
    soft_weight: float = Field(default=0.5, ge=0)
    hidden_weight: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _weights_make_a_loss(self) -> Self:
        if self.hard_weight + self.soft_weight + self.hidden_weight == 0:
            msg = "hard_weight, soft_weight and hidden_weight are all 0: nothing to learn from"
            raise ValueError(msg)
        if self.model is not None and self.hidden_weight:
            msg = "hidden_weight must be 0 where model is given: its hidden states are not the teacher's"
            raise ValueError(msg)
        if list(self.layers) != sorted(set(self.layers)) or min(self.layers) < 0:
            msg = "layers ascend, from 0, without repeats"
            raise ValueError(msg)
        return self


class TrainConfig(Frozen):
    """What the teacher and the student share, and one section each.

    Attributes:
        max_length: tokens of a text at most, special tokens counted; longer ones are cut and counted.
        seed: of new weights, batches and dropout.
        precision: arithmetic of the forward and backward pass; ``auto`` measures what is fast here.
        token_budget: tokens of a batch at most, padding counted.
        max_texts: texts of a batch at most.
        data_workers: processes that read batches ahead; 0 reads them in the training process.
        checkpoint_every_steps: a killed run resumes from the last of these.
        compile: whether the model goes through torch.compile (needs a C++ compiler on a CPU).
        parallel: how several processes share the model: ``ddp`` each holds a copy, ``fsdp`` each holds a part; ``auto``
            takes the second where a copy's training would not fit one device.
        tf32: whether FP32 products on an NVIDIA GPU may use TF32.
    """

    max_length: int = Field(default=128, ge=8)
    seed: int = Field(default=0, ge=0)
    precision: PrecisionChoice = "auto"
    token_budget: int = Field(default=1024, ge=8)
    max_texts: int = Field(default=64, ge=1)
    data_workers: int = Field(default=0, ge=0)
    checkpoint_every_steps: int = Field(default=200, ge=1)
    compile: bool = False
    parallel: Literal["auto", "ddp", "fsdp"] = "auto"
    tf32: bool = False
    teacher: TeacherConfig = TeacherConfig()
    student: StudentConfig = StudentConfig()

    @model_validator(mode="after")
    def _a_text_fits_a_batch(self) -> Self:
        if self.token_budget < self.max_length:
            msg = (
                f"token_budget ({self.token_budget}) is less than max_length ({self.max_length}): a text would not fit"
            )
            raise ValueError(msg)
        return self
