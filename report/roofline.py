"""Where training and each variant stand under the machine's ceilings: arithmetic a second against arithmetic a byte.

Bytes are the weights' and the activations'. A batch reads each product's weights once, as wide as the variant stores
them; the embedding table is only looked into, and not counted. Of a transformer's layer every operator reads its
inputs and writes its outputs once, which is 20 x hidden + 4 x intermediate values a token (the intermediate layer taken
as four times as wide), at 4 bytes, or 2 in FP16; attention's scores are left out, small for short texts. A training
step moves the activations three times (forward, and twice as much backward) and 40 bytes a parameter: the weights are
read forward and backward, the gradient is written, and AdamW reads four arrays and writes three.
"""

from __future__ import annotations

import statistics

from report.evidence import Evidence
from testbed.records import BundleManifest, LoadTestRun, TrainingRun, Variant
from testbed.records.cost import RoofPoint

TRAINING_BYTES_PER_PARAMETER = 40
ACTIVATIONS_BACK_AND_FORTH = 3
VALUES_A_TOKEN = 20 + 4 * 4  # times hidden size and layers
WEIGHT_BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "int4": 0.5}
ACTIVATION_BYTES = {"fp32": 4, "fp16": 2, "int8": 4, "int4": 4}
TRAINED_BYTES = 4
PACKED_TEXTS = 8
DATA_BOUND_SHARE = 0.2


class Ceilings:
    """What one thread was measured to do at best.

    Args:
        flops_per_s: FP32 matrix product; None where it was not measured on this machine.
        bytes_per_s: memory bandwidth, likewise.
    """

    def __init__(self, flops_per_s: float | None, bytes_per_s: float | None) -> None:
        self.flops_per_s = flops_per_s
        self.bytes_per_s = bytes_per_s

    def bound(self, flops_per_byte: float, flops_per_s: float) -> tuple[str | None, str]:
        """Return ``compute`` or ``memory``, the ceiling that is nearer at this intensity, and the figures."""
        if self.flops_per_s is None or self.bytes_per_s is None:
            return None, "the ceilings of the machine that was measured are not known"
        ridge = self.flops_per_s / self.bytes_per_s
        ceiling = min(self.flops_per_s, flops_per_byte * self.bytes_per_s)
        reason = (
            f"{flops_per_byte:.3g} FLOPs a byte, the ridge is at {ridge:.3g}; "
            f"it reaches {flops_per_s / ceiling:.0%} of the FP32 ceiling there"
        )
        return ("compute" if flops_per_byte >= ridge else "memory"), reason


def roof_points(evidence: Evidence, ceilings: Ceilings) -> tuple[RoofPoint, ...]:
    """Return a point for each training stage, and for each variant whose speed was measured: one text, and packed."""
    points = [_trained(stage, run, ceilings) for stage, run in evidence.training.items()]
    for variant in evidence.manifest.variants:
        shape = next((run for stage, run in evidence.training.items() if stage == variant.model), None)
        if variant.speed and shape:
            points.append(_served(variant, shape, evidence, ceilings, texts=1))
            if variant.speed.packed_texts_per_s:
                points.append(_served(variant, shape, evidence, ceilings, texts=PACKED_TEXTS))
    return tuple(points)


def _trained(stage: str, run: TrainingRun, ceilings: Ceilings) -> RoofPoint:
    name = f"training the {stage}"
    step = next((each for each in run.roofline.points if each.part == "step"), None) if run.roofline else None
    if run.roofline and step:
        return RoofPoint(
            name=name,
            where="training",
            flops_per_byte=step.flops_per_byte,
            flops_per_s=step.flops_per_s,
            bound=run.roofline.bound,
            reason=run.roofline.reason,
        )
    seconds = run.phases["train"].wall_s if "train" in run.phases else run.usage.wall_s
    tokens = run.num_padded_tokens / run.num_steps
    moved = TRAINING_BYTES_PER_PARAMETER * run.model.num_parameters
    moved += round(ACTIVATIONS_BACK_AND_FORTH * tokens * _activation_values(run) * TRAINED_BYTES)
    intensity, flops_per_s = run.model_flops / run.num_steps / moved, run.model_flops / seconds
    share = run.step_split.data_wait_s / run.step_split.wall_s
    bound: str | None = "data"
    if share >= DATA_BOUND_SHARE:
        reason = f"{share:.0%} of a step is waiting for the next batch"
    else:
        threads = max(1.0, run.machine.usable_cores)
        peak = run.gemm_flops_per_s / threads if run.gemm_flops_per_s else None
        bound, reason = Ceilings(peak, ceilings.bytes_per_s).bound(intensity, flops_per_s / threads)
    return RoofPoint.model_validate(
        {
            "name": name,
            "where": "training",
            "flops_per_byte": intensity,
            "flops_per_s": flops_per_s,
            "bound": bound,
            "reason": reason,
        }
    )


def _served(variant: Variant, trained: TrainingRun, evidence: Evidence, ceilings: Ceilings, *, texts: int) -> RoofPoint:
    speed = variant.speed
    assert speed is not None
    texts_per_s = speed.texts_per_s if texts == 1 else speed.packed_texts_per_s
    assert texts_per_s is not None
    tokens = texts * _mean_tokens(evidence.manifest)
    flops_per_token = variant.flops_per_token
    if texts > 1 and variant.packed_flops_per_token:
        flops_per_token = variant.packed_flops_per_token
    weights = variant.flops_per_token / 2 * WEIGHT_BYTES[variant.precision]
    activations = tokens * _activation_values(trained) * ACTIVATION_BYTES[variant.precision]
    # What a layout leaves out of the layers it neither computes nor writes.
    activations *= flops_per_token / variant.flops_per_token
    intensity = tokens * flops_per_token / (weights + activations)
    flops_per_s = texts_per_s * tokens / texts * flops_per_token
    share = _preparing_share(variant.name, evidence) if texts == 1 else None
    bound: str | None = "data"
    if share is not None and share >= DATA_BOUND_SHARE:
        reason = f"{share:.0%} of a lone query's time is tokenizing and building the inputs"
    else:
        bound, reason = ceilings.bound(intensity, flops_per_s)
    return RoofPoint.model_validate(
        {
            "name": variant.name,
            "where": "one text" if texts == 1 else f"{texts} packed",
            "flops_per_byte": intensity,
            "flops_per_s": flops_per_s,
            "bound": bound,
            "reason": f"{reason}; {activations / (weights + activations):.0%} of the bytes are activations",
        }
    )


def _activation_values(run: TrainingRun) -> int:
    """Return how many values the layers' operators read and write for a token."""
    return VALUES_A_TOKEN * run.model.hidden_size * run.model.num_layers


def _mean_tokens(manifest: BundleManifest) -> float:
    return statistics.fmean(manifest.lengths)


def _preparing_share(variant: str, evidence: Evidence) -> float | None:
    """Return the share of a lone query's batch time before the model runs, None where it was not measured."""
    alone: list[LoadTestRun] = [
        run for run in evidence.loads.values() if run.variant == variant and run.scenario == "SingleStream"
    ]
    parts = next((run.timings for run in alone if run.timings.get("compute")), None)
    if parts is None:
        return None
    before = parts.get("tokenize", 0.0) + parts.get("batch", 0.0)
    return before / (before + parts["compute"])
