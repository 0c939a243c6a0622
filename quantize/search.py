"""The fastest INT8 form of a model that keeps the floor: whole methods first, then without their worst products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from quantize.config import QuantizeConfig
from quantize.graph import save_graph
from quantize.precision import Material, Setting, make, prepare
from quantize.products import product_groups
from quantize.session import Logits, Padded, Rows, open_session, run_in_batches
from quantize.speed import speeds
from quantize.verify import check_invariance, compare
from testbed.meter import Meter
from testbed.records.quantization import Sensitivity, Trial

MANY_BYTES = 2**30


@dataclass
class Search:
    """One model's search on the dev split.

    Args:
        config: which methods, and the bounds that a trial must keep.
        fused: the padded FP32 graph.
        setting: the CPU's flags.
        material: training texts to learn from.
        rows: token ids of the dev texts.
        labels: the true ones.
        max_length: of the model.
    """

    config: QuantizeConfig
    fused: onnx.ModelProto
    setting: Setting
    material: Material
    rows: Rows
    labels: list[int]
    max_length: int
    trials: list[Trial] = field(default_factory=list)
    sensitivities: dict[str, tuple[Sensitivity, ...]] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)

    def run(self) -> int | None:
        """Try the candidates; return the index of the one to take, or None where none keeps the floor."""
        with TemporaryDirectory() as folder:
            self._folder = Path(folder)
            self._fp32 = self._open(self.fused)
            self._expected = run_in_batches(self._fp32, self.rows, size=1)
            for method in self.config.search.methods:
                self._try_method(method)
        level = as_fast_as_any(self.trials)
        return max(level, key=lambda index: _merit(self.trials[index]), default=None)

    @property
    def num_groups(self) -> int:
        """Product groups of the model."""
        return len(product_groups(self.fused))

    def _try_method(self, method: str) -> None:
        """Try all products quantized, then leave the worst out, one after the other, until the floor holds."""
        prepared = prepare(method, self.fused, self.setting, self.material)
        for keep in self._keeps(method, prepared):
            trial = self._try(method, replace(prepared, keep=keep))
            if trial.keeps_floor or trial.ratio_interval.high <= 1:
                return

    def _keeps(self, method: str, prepared: Setting) -> Iterator[frozenset[int]]:
        yield frozenset()
        ranked = tuple(sorted(self._sensitivities(method, prepared), key=lambda one: -one.mean_logit_change))
        self.sensitivities[method] = ranked
        for count in range(1, min(self.config.search.most_left_out, self.num_groups - 1) + 1):
            yield frozenset(one.group for one in ranked[:count])

    def _sensitivities(self, method: str, prepared: Setting) -> Iterator[Sensitivity]:
        some = self.rows[: self.config.search.sensitivity_texts]
        everything = frozenset(range(self.num_groups))
        for place, group in enumerate(product_groups(self.fused)):
            made = make(method, self.fused, replace(prepared, keep=everything - {place}), flat=False)
            change = np.abs(run_in_batches(self._open(made.model), some, size=1) - self._expected[: len(some)])
            yield Sensitivity(
                group=place,
                products=tuple(node.name for node in group.nodes),
                mean_logit_change=float(change.mean()),
                max_logit_change=float(change.max()),
            )

    def _try(self, method: str, setting: Setting) -> Trial:
        with Meter() as meter:
            runner = self._open(make(method, self.fused, setting, flat=False).model)
            trial = self._judge(method, setting, runner, run_in_batches(runner, self.rows, size=1), meter)
        self.trials.append(trial)
        self.settings.append(setting)
        return trial

    def _judge(self, method: str, setting: Setting, runner: Padded, logits: Logits, meter: Meter) -> Trial:
        bound, texts = self.config.invariance, self.config.search.sensitivity_texts
        checks = check_invariance(runner, None, self.rows, logits, num_texts=texts, max_length=self.max_length)
        found = compare(logits, labels=self.labels, parent="fp32", parent_logits=self._expected, invariance=checks)
        speed = speeds(
            {"fp32": self._fp32, method: runner}, {}, self.rows, reference="fp32", rounds=self.config.search.rounds
        )
        flips = max(check.flip_rate for check in checks)
        change = max(check.max_logit_change for check in checks)
        invariant = flips <= bound.flip_rate and change <= bound.logit_change
        assert found is not None, "FP32 keeps INT8 logits finite"
        assert found.difference_lower_bound is not None
        return Trial(
            method=method,
            kept=tuple(sorted(setting.keep)),
            accuracy_difference=found.accuracy_difference,
            difference_lower_bound=found.difference_lower_bound,
            agreement=found.agreement,
            max_logit_difference=found.max_logit_difference,
            batch_flip_rate=flips,
            batch_max_logit_change=change,
            ratio_to_fp32=speed[method].ratio_to_fp32,
            ratio_interval=speed[method].ratio_interval,
            keeps_floor=invariant and found.difference_lower_bound >= -self.config.accuracy_points / 100,
            usage=meter.end(),
        )

    def _open(self, model: onnx.ModelProto) -> Padded:
        path = self._folder / "candidate.onnx"
        save_graph(model, path, external_from_bytes=MANY_BYTES)
        return Padded(open_session(path), pad_token_id=self.material.pad_token_id)


def as_fast_as_any(trials: Sequence[Trial]) -> list[int]:
    """Return the trials that keep the floor and whose speed's interval meets that of the fastest of these.

    Speed does not tell them apart, accuracy may: of many that pass on the dev split, the fastest by chance is as likely
    as not the least accurate one.
    """
    keeping = [index for index, trial in enumerate(trials) if trial.keeps_floor]
    fastest = max(keeping, key=lambda index: trials[index].ratio_to_fp32, default=0)
    return [index for index in keeping if trials[index].ratio_interval.high >= trials[fastest].ratio_interval.low]


def _merit(trial: Trial) -> tuple[float, float]:
    """Return what sets trials of one speed apart: accuracy, as far as it is certain, then speed after all."""
    return trial.difference_lower_bound, trial.ratio_to_fp32
