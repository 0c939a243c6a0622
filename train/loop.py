"""The training loop, top to bottom."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from testbed.errors import UserError
from testbed.records.training import Epoch
from train.checkpoint import About, Checkpoints, Saved
from train.clock import PARTS, StepClock, StepTimes
from train.compiling import explained, typical
from train.config import Recipe, TrainConfig
from train.feed import Feed
from train.journal import Journal
from train.loader import Batch
from train.objective import Objective
from train.operators import quick
from train.phases import Phases
from train.precision import Precision
from train.probe import StepCost
from train.processes import Processes
from train.sharding import Parallel, ShardedModel, ShardedOptimizer
from train.stopping import StoppedError, StopRequest
from train.weights import WorkingWeights

# What every step sums over the processes, in this order.
FIGURES = ("loss", "num_tokens", "num_padded_tokens", "model_flops", "stop")


@dataclass
class Loop:
    """One training, from its first step (or its last checkpoint) to its last.

    Attributes:
        model: trained in place.
        objective: the loss.
        feed: batches by epoch.
        evaluate: gives the accuracy on the dev split.
        journal: takes every step's row.
        checkpoints: for resuming.
        cost: of a pass over a batch.
        parallel: how the processes share the model.
    """

    config: TrainConfig
    recipe: Recipe
    processes: Processes
    precision: Precision
    phases: Phases
    model: Any
    objective: Objective
    feed: Feed
    evaluate: Callable[[], float]
    journal: Journal
    checkpoints: Checkpoints
    cost: StepCost
    parallel: Parallel
    total_steps: int
    epochs: list[Epoch] = field(default_factory=list, init=False)
    step: int = field(default=0, init=False)
    batch: int = field(default=0, init=False)
    resumed_from_step: int | None = field(default=None, init=False)
    _waiting: list[tuple[dict[str, Any], Tensor]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.clock = StepClock(self.processes.device)
        self.sharded = ShardedModel(self.model, self.processes.device) if self.parallel == "fsdp" else None
        self.weights = WorkingWeights(self.model, self.processes.working_dtype(self.precision.name))
        groups = parameter_groups(self.model, self.recipe.weight_decay)
        for group in groups:
            group["params"] = [self.weights.trained[parameter] for parameter in group["params"]]
        self.optimizer = torch.optim.AdamW(groups, fused=True)
        self.scaler = self.precision.scaler(self.processes.device)
        compiled: Any = torch.compile(self.model, dynamic=True) if self.config.compile else self.model
        share = self.parallel == "ddp"
        self.shared_model = self.processes.share_gradients(compiled, self.clock) if share else compiled

    def run(self, saved: Saved | None) -> None:
        """Train every epoch that is left, evaluating after each.

        Raises:
            StoppedError: a signal asked for it; a checkpoint was saved.
            UserError: the loss is not finite, or a checkpoint cannot be written.
        """
        if saved:
            self._resume(saved)
        if self.config.compile:
            with self.phases.phase("compile"):
                self._compile()
        with StopRequest() as stop, self.journal:
            for epoch in range(len(self.epochs), self.recipe.epochs):
                with self.phases.phase("train"):
                    self._train_epoch(epoch, stop)
                with self.phases.phase("evaluate"):
                    # Sharded, every process has to take part.
                    takes_part = self.processes.main or self.sharded is not None
                    accuracy = self.processes.from_main(self.evaluate() if takes_part else None)
                self._end_epoch(epoch, accuracy)
        self.weights.restore()
        if self.sharded is not None:
            self.model = self.sharded.whole()

    def _train_epoch(self, epoch: int, stop: StopRequest) -> None:
        device, clock = self.processes.device, self.clock
        self.model.train()
        clock.pause()
        batches = self.feed.batches(epoch, start=self.batch)
        while True:
            clock.begin(self.step)
            batch = next(batches, None)
            clock.mark("data_wait")
            if batch is None:
                return
            batch = batch.to(device)
            clock.mark("copy")
            # Dropout depends on seed, step and rank alone, so that a resumed step repeats it.
            torch.manual_seed(hash((self.config.seed, self.step, self.processes.rank)))
            with self.precision.autocast(device), self._operators():
                loss = self.objective(self.shared_model, batch)
            clock.mark("forward")
            # The processes' gradients are averaged, the loss is a sum over them.
            self.scaler.scale(loss * self.processes.world_size).backward()  # type: ignore[no-untyped-call]
            # Copies: the hook has marked the end of the backward pass; sharded, communication is inside of the passes.
            clock.mark("sync" if self.parallel == "ddp" else "backward")
            figures = self.processes.sum_into(self._figures(batch, loss, stop))
            if not self.processes.alone:
                clock.mark("sync")
            learning_rate = self._update()
            clock.mark("optimizer")
            self._end_step(epoch, batch, figures, learning_rate, stop)

    def _compile(self) -> None:
        """Have both passes compiled for one batch, whose gradients are thrown away: no step's time holds that."""
        device = self.processes.device
        self.model.train()
        batch = typical(self.feed.batches(0)).to(device)
        with explained():
            with self.precision.autocast(device), self._operators():
                loss = self.objective(self.shared_model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
        self.model.zero_grad(set_to_none=True)

    def _operators(self) -> AbstractContextManager[object]:
        """Return the context of the forward pass: a compiled one has fused its operators already."""
        return nullcontext() if self.config.compile else quick(self.processes.device)

    def _update(self) -> float:
        learning_rate = self.recipe.learning_rate * rate_factor(
            self.step, self.total_steps, warmup_share=self.recipe.warmup_share
        )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        gradients = self.weights.take_gradients()
        self.scaler.unscale_(self.optimizer)
        norm = whole_tensor(nn.utils.get_total_norm(gradients))
        if norm.device.type == "cpu" and not self.scaler.is_enabled() and self.sharded is None:
            clip_in_step(self.optimizer, norm, self.recipe.max_grad_norm)
        else:
            nn.utils.clip_grads_with_norm_(self.weights.trained.values(), self.recipe.max_grad_norm, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.weights.give()
        return learning_rate

    def _figures(self, batch: Batch, loss: Tensor, stop: StopRequest) -> Tensor:
        rows, length = batch.input_ids.shape
        values = [
            0.0,
            batch.num_tokens,
            rows * length,
            self.cost.flops(rows, length),
            float(stop.signal_name is not None),
        ]
        figures = torch.tensor(values, dtype=torch.float64, device=loss.device)
        figures[0] = loss.detach()
        return figures

    def _end_step(self, epoch: int, batch: Batch, figures: Tensor, learning_rate: float, stop: StopRequest) -> None:
        row = {"step": self.step, "epoch": epoch, "num_texts": batch.num_texts, "learning_rate": learning_rate}
        self.step += 1
        self.batch += 1
        save_due = self.step % self.config.checkpoint_every_steps == 0
        # On a GPU reading a figure means waiting for the step, so that is done on sampled steps and before saving.
        times = self.clock.end()
        self._waiting.append((row | _times_of(times, self.clock.wall_s), figures))
        stop_asked = (times is not None or save_due) and self._settle()
        if save_due or stop_asked:
            self._save(epoch)
            self.clock.pause()
        if stop_asked:
            msg = f"stopped by {stop.signal_name or 'another process'} after step {self.step} of {self.total_steps}"
            raise StoppedError(f"{msg}; a checkpoint was saved; help: run the same command again to go on from there")

    def _settle(self) -> bool:
        """Read the figures of the steps that wait for it; returns whether some process was asked to stop."""
        asked = False
        for row, figures in self._waiting:
            read = dict(zip(FIGURES, figures.tolist(), strict=True))
            asked = asked or read.pop("stop") > 0
            if not math.isfinite(read["loss"]):
                raise self._not_finite(row, read["loss"])
            self.journal.add(row | read | {name: int(read[name]) for name in ("num_tokens", "num_padded_tokens")})
        self._waiting = []
        return asked

    def _not_finite(self, row: dict[str, Any], loss: float) -> UserError:
        number = self.batch - (self.step - row["step"])
        lines = sorted(int(index) + 1 for index in self.feed.plan(row["epoch"])[number])
        kept = [path.name for path in self.checkpoints.all()]
        msg = (
            f"the loss is {loss} at step {row['step']}, batch {number} of epoch {row['epoch']}: the texts in lines "
            f"{', '.join(map(str, lines))} of train.jsonl; last good checkpoint: {kept[-1] if kept else 'none'}; "
            "help: lower learning_rate, or set precision: fp32"
        )
        return UserError(msg)

    def _end_epoch(self, epoch: int, dev_accuracy: float) -> None:
        self._settle()
        rows = [row for row in self.journal.rows if row["epoch"] == epoch]
        texts = sum(row["num_texts"] for row in rows)
        self.epochs.append(
            Epoch(
                index=epoch,
                train_loss=sum(row["loss"] * row["num_texts"] for row in rows) / texts,
                dev_accuracy=dev_accuracy,
                wall_s=sum(row["wall_s"] for row in rows),
            )
        )
        self.journal.add_epoch(step=self.step, dev_accuracy=dev_accuracy)
        self.batch = 0

    def _save(self, epoch: int) -> None:
        # Sharded, every process has to give its part.
        state = {name: part.state_dict() for name, part in self._parts().items()}
        if self.processes.main:
            about = About(
                step=self.step,
                epoch=epoch,
                batch=self.batch,
                precision=self.precision.name,
                precision_reason=self.precision.reason,
                epochs=tuple(self.epochs),
                phases=self.phases.so_far(),
            )
            steps = self.journal.write(self.checkpoints.folder / "steps.parquet")
            self.checkpoints.save(about, state, steps)
        self.processes.wait()

    def _resume(self, saved: Saved) -> None:
        try:
            for name, part in self._parts().items():
                part.load_state_dict(saved.state[name])
        except (KeyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            what = f"its state is not this model's ({reason}): another version's"
            raise self.checkpoints.refused(self.checkpoints.at(saved.about.step), what) from error
        self.journal.rows = list(saved.rows)
        self.step, self.batch, self.epochs = saved.about.step, saved.about.batch, list(saved.about.epochs)
        self.resumed_from_step = self.step

    def _parts(self) -> dict[str, Any]:
        if self.sharded is not None:
            optimizer = ShardedOptimizer(self.sharded.model, self.optimizer)
            return {"model": self.sharded, "optimizer": optimizer, "scaler": self.scaler}
        return {"model": self.weights, "optimizer": self.optimizer, "scaler": self.scaler}


def clip_in_step(optimizer: torch.optim.Optimizer, norm: Tensor, max_norm: float) -> None:
    """Have the next fused step divide the gradients down to ``max_norm``, which saves a pass over all of them.

    The attributes are those by which GradScaler tells a fused optimiser its loss scale.
    """
    too_long = not bool(norm <= max_norm)
    scaled: Any = optimizer
    scaled.grad_scale = (norm + 1e-6) / max_norm if too_long else None
    scaled.found_inf = None


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return a sharded tensor's sum or an ordinary one itself; all processes must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def rate_factor(step: int, total_steps: int, *, warmup_share: float) -> float:
    """Return the share of the peak learning rate at a step: a linear rise, then a linear fall to 0."""
    warmup = warmup_share * total_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(0.0, (total_steps - step) / max(1.0, total_steps - warmup))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return AdamW's groups: matrices with weight decay; embeddings, biases and normalisation weights without."""
    embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [p for p in parameters if p.dim() > 1 and id(p) not in embeddings]
    others = [p for p in parameters if p.dim() <= 1 or id(p) in embeddings]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _times_of(times: StepTimes | None, wall_s: float) -> dict[str, float | None]:
    if times is None:
        return {"wall_s": wall_s, "other_s": None, **dict.fromkeys((f"{part}_s" for part in PARTS), None)}
    parts = {f"{part}_s": seconds for part, seconds in times.parts_s.items()}
    return {"wall_s": times.wall_s, "other_s": times.other_s, **parts}
