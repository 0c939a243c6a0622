"""The section ``quantize:`` of an experiment: which variants to make and what each must keep."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from testbed.records.base import Frozen
from testbed.records.bundle import Precision

# Each method by its name in a variant's name. ``int8`` is row-wise dynamic, ``int8-dynamic`` what libraries make;
# ``int8-static`` is calibrated by the extremes, ``int8-mixed`` static behind LayerNormalization and row-wise elsewhere;
# ``int8-weights`` leaves activations alone; ``int8-auto`` is the fastest that the search finds.
METHODS: dict[str, Precision] = {
    "fp32": "fp32",
    "fp16": "fp16",
    "int8": "int8",
    "int8-dynamic": "int8",
    "int8-static": "int8",
    "int8-static-percentile": "int8",
    "int8-static-entropy": "int8",
    "int8-mixed": "int8",
    "int8-weights": "int8",
    "int8-auto": "int8",
    "int4-weights": "int4",
}
VARIANT_NAME = re.compile(rf"^(?P<model>teacher|student)-(?P<method>{'|'.join(sorted(METHODS, reverse=True))})$")


class InvarianceBound(Frozen):
    """How far an answer may depend on its batch-mates and padding, before a variant is refused.

    Attributes:
        flip_rate: share of texts whose label differs from the one that they get alone.
        logit_change: largest change of any logit. The order of float sums changes with the batch, so an INT8
            activation at a rounding boundary may fall on the other side: up to 0.2 was seen of a well-trained model
            where no label changed, and 1 to 2 of scales that a whole batch shares.
        num_texts: test texts that are tried under each condition.
    """

    flip_rate: float = Field(default=0.005, ge=0, le=1)
    logit_change: float = Field(default=0.5, ge=0)
    num_texts: int = Field(default=256, gt=0)


class SearchConfig(Frozen):
    """How the variant ``int8-auto`` is sought, on the dev split.

    Attributes:
        methods: INT8 methods to try, each whole first.
        most_left_out: product groups that a method may leave in FP32 to keep the floor.
        sensitivity_texts: dev texts on which each product's own error, and the invariance of a trial, is measured.
        rounds: interleaved rounds of each trial's speed measurement.
    """

    methods: tuple[
        Literal["int8", "int8-static", "int8-static-percentile", "int8-static-entropy", "int8-mixed"], ...
    ] = (
        "int8",
        "int8-mixed",
        "int8-static-percentile",
        "int8-static",
    )
    most_left_out: int = Field(default=4, ge=0)
    sensitivity_texts: int = Field(default=64, gt=0)
    rounds: int = Field(default=8, ge=4)


class QuantizeConfig(Frozen):
    """What to make of each checkpoint, and what it must keep.

    Attributes:
        variants: names ``<model>-<method>``; the FP32 variant of a model is made first, whatever the order, and kept
            in the bundle only where it is named.
        max_length: tokens at most, for a checkpoint that does not say; None takes the checkpoint's own.
        parity_bound: largest logit difference allowed between PyTorch and ONNX FP32, and between the two layouts.
        accuracy_points: accuracy points that a variant may lose against its FP32 parent: it is refused where the
            one-sided 95 % bound of the paired loss is above.
        invariance: bound on the dependence on batch-mates and padding.
        search: for the variant ``int8-auto``.
        force: keep a variant that breaks a bound, with a warning in the manifest.
        external_data_bytes: weights go into a file beside the graph from this size on; protobuf ends at 2 GiB.
        calibration_texts: training texts that calibrate static INT8 and prove FP16, the first of the split.
        speed_rounds: interleaved rounds of the speed measurement.
    """

    variants: tuple[str, ...] = (
        "teacher-fp32",
        "teacher-int8",
        "student-fp32",
        "student-fp16",
        "student-int8",
    )
    max_length: int | None = Field(default=None, ge=3)
    parity_bound: float = Field(default=1e-4, gt=0)
    accuracy_points: float = Field(default=1.0, ge=0)
    invariance: InvarianceBound = Field(default_factory=InvarianceBound)
    search: SearchConfig = Field(default_factory=SearchConfig)
    force: bool = False
    external_data_bytes: int = Field(default=1_500_000_000, gt=0)
    calibration_texts: int = Field(default=256, gt=0)
    speed_rounds: int = Field(default=12, ge=4)

    @model_validator(mode="after")
    def _known_variants(self) -> Self:
        for name in self.variants:
            if not VARIANT_NAME.match(name):
                methods = ", ".join(METHODS)
                msg = f"variant {name!r} is not <teacher|student>-<method>; help: the methods are {methods}"
                raise ValueError(msg)
        if not self.variants or len(set(self.variants)) != len(self.variants):
            msg = "variants: name at least one, and none twice"
            raise ValueError(msg)
        return self

    def methods_of(self, model: str) -> tuple[str, ...]:
        """Return the methods asked for one model, ``fp32`` first whether asked for or not; empty where none is."""
        asked = [name.removeprefix(f"{model}-") for name in self.variants if name.startswith(f"{model}-")]
        return ("fp32", *(method for method in asked if method != "fp32")) if asked else ()
