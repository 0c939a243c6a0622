"""What has to be learnt before a variant can be made: ranges, operators that overflow, or the search's choice."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import onnx

from quantize.checkpoint import Checkpoint
from quantize.config import QuantizeConfig
from quantize.precision import Material, Setting, prepare
from quantize.search import Search, as_fast_as_any
from quantize.session import Padded, run_in_batches
from testbed.dataset import Split
from testbed.errors import UserError
from testbed.machine import cpu_flags, provenance
from testbed.meter import Meter
from testbed.records import save
from testbed.records.quantization import QuantizationSearch

Model = Literal["teacher", "student"]
AUTO = "int8-auto"


class Splits(NamedTuple):
    """The data set: the training texts calibrate, the dev ones choose, the test ones verify."""

    train: Split
    dev: Split
    test: Split


class Recipe(NamedTuple):
    """The method that makes a variant, and the setting of both its layouts."""

    method: str
    setting: Setting


class Kitchen:
    """Finds the recipes of one model.

    Args:
        config: of the experiment.
        model: whose.
        checkpoint: of the model.
        splits: of the data set.
        fused: the padded FP32 graph.
        reference: the same, open.
    """

    def __init__(
        self,
        config: QuantizeConfig,
        model: Model,
        checkpoint: Checkpoint,
        splits: Splits,
        fused: onnx.ModelProto,
        reference: Padded,
    ) -> None:
        self._config, self._model, self._checkpoint = config, model, checkpoint
        self._splits, self._fused = splits, fused
        rows = checkpoint.tokenizer.encode_batch(splits.train.texts[: config.calibration_texts])
        logits = run_in_batches(reference, rows, size=1)
        self._material = Material(rows, logits, checkpoint.pad_token_id)

    def recipe(self, method: str, folder: Path) -> Recipe:
        """Return how a variant of this method is made; a search leaves its record in ``folder``.

        Raises:
            UserError: the method cannot work on this model, or no trial of the search keeps the floor.
        """
        setting = Setting(cpu_flags())
        if method == AUTO:
            return self._search(setting, folder / f"search.{self._model}.json")
        return Recipe(method, prepare(method, self._fused, setting, self._material))

    def _search(self, setting: Setting, path: Path) -> Recipe:
        with Meter() as meter:
            search = Search(
                config=self._config,
                fused=self._fused,
                setting=setting,
                material=self._material,
                rows=self._checkpoint.tokenizer.encode_batch(self._splits.dev.texts),
                labels=self._splits.dev.labels,
                max_length=self._checkpoint.tokenizer.max_length,
            )
            chosen = search.run()
            usage = meter.end()
        reason = _reason(search, chosen)
        record = QuantizationSearch(
            **provenance(self._config.model_dump(mode="json"), {self._model: self._checkpoint.sha256}),
            model=self._model,
            num_groups=search.num_groups,
            sensitivities=search.sensitivities,
            trials=tuple(search.trials),
            chosen=chosen,
            reason=reason,
            usage=usage,
        )
        save(record, path)
        if chosen is None:
            raise UserError(reason)
        return Recipe(search.trials[chosen].method, search.settings[chosen])


def _reason(search: Search, chosen: int | None) -> str:
    count = len(search.trials)
    if chosen is None:
        return (
            f"none of {count} trials keeps the accuracy floor and the invariance bound on the dev split; "
            "help: loosen accuracy_points, or let the search leave out more (most_left_out)"
        )
    trial = search.trials[chosen]
    left = f" without {len(trial.kept)} product groups" if trial.kept else ""
    level = len(as_fast_as_any(search.trials))
    best = (
        "the fastest" if level == 1 else f"the most accurate of the {level} fastest, which speed does not tell apart,"
    )
    return f"{trial.method}{left} keeps the floor at {trial.ratio_to_fp32:.2f} × FP32: {best} of {count} trials"
