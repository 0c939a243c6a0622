"""All variants of one model, each verified against the FP32 parent and measured beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from quantize.checkpoint import Checkpoint
from quantize.config import METHODS, QuantizeConfig
from quantize.graph import fused_counts, operator_counts, weight_bytes
from quantize.parent import Layouts, Parent, export_parent, write_layouts
from quantize.precision import Setting
from quantize.recipe import Kitchen, Model, Recipe, Splits
from quantize.session import Logits, Padded, Rows, provider_counts, run_in_batches
from quantize.speed import speeds
from quantize.verify import accuracy_loss, broken_bound, check_invariance, compare
from testbed.errors import UserError
from testbed.machine import cpu_flags, isa
from testbed.meter import Meter
from testbed.progress import Progress
from testbed.records import Golden, Refusal, Speed, Usage, Variant, Verification, file_sha256

NUM_GOLDENS = 8
VARIANTS = "variants"


@dataclass
class Family:
    """One model's variants as far as they are made; those that a bound refused are named with the reason."""

    config: QuantizeConfig
    model: Model
    checkpoint: Checkpoint
    splits: Splits
    folder: Path
    rows: Rows
    variants: list[Variant] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    layouts: dict[str, Layouts] = field(default_factory=dict)
    fp32_logits: Logits | None = None
    reference: Padded | None = None
    kitchen: Kitchen | None = None

    @property
    def goldens(self) -> tuple[Golden, ...]:
        """Test texts of all lengths, shortest to longest, with the FP32 logits of each alone."""
        assert self.fp32_logits is not None
        by_length = sorted(range(len(self.rows)), key=lambda index: len(self.rows[index]))
        picks = np.linspace(0, len(by_length) - 1, min(NUM_GOLDENS, len(by_length))).astype(int)
        return tuple(
            Golden(
                model=self.model,
                text=self.splits.test.texts[index],
                input_ids=tuple(self.rows[index]),
                logits=tuple(self.fp32_logits[index].tolist()),
            )
            for index in (by_length[pick] for pick in picks)
        )


def num_steps(config: QuantizeConfig, model: str) -> int:
    """Return how many steps of progress one model takes: the export, each variant, the speed."""
    return 2 + len(config.methods_of(model))


def make_family(
    config: QuantizeConfig, model: Model, checkpoint: Checkpoint, splits: Splits, folder: Path, bar: Progress
) -> Family:
    """Make, verify and measure one model's variants.

    Args:
        config: which, and what each must keep.
        model: whose.
        checkpoint: of the model.
        splits: of the data set.
        folder: of the bundle; files go to ``variants/``.
        bar: is advanced ``num_steps`` times.

    Raises:
        UserError: the checkpoint cannot be exported, or its export computes something else.
    """
    rows = checkpoint.tokenizer.encode_batch(splits.test.texts)
    family = Family(config, model, checkpoint, splits, folder, rows)
    parent = export_parent(checkpoint, family.rows, bound=config.parity_bound)
    bar.advance(model=model, step="exported")
    for method in config.methods_of(model):
        _add_variant(family, method, parent)
        bar.advance(model=model, step=method)
    _measure(family)
    bar.advance(model=model, step="speed")
    _leave_out_unasked(family)
    return family


def _add_variant(family: Family, method: str, parent: Parent) -> None:
    name = f"{family.model}-{method}"
    with Meter() as meter:
        try:
            recipe = _recipe(family, method, parent)
        except UserError as error:
            family.refused.append(Refusal(name=name, reason=str(error)))
            return
        layouts = write_layouts(
            recipe.method,
            parent,
            family.folder / VARIANTS / name,
            setting=recipe.setting,
            pad_token_id=family.checkpoint.pad_token_id,
            external_from_bytes=family.config.external_data_bytes,
        )
        verification = _verify(family, method, layouts, parent)
        usage = meter.end()
    reason = _refusal(family.config, verification)
    if reason is not None and (verification is None or not family.config.force):
        family.refused.append(Refusal(name=name, reason=reason, verification=verification))
        for file in layouts.files:
            file.unlink()
        return
    assert verification is not None
    family.layouts[name] = layouts
    warnings = [reason, accuracy_loss(verification, family.config)]
    family.variants.append(_describe(family, name, method, layouts, verification, usage, warnings))


def _recipe(family: Family, method: str, parent: Parent) -> Recipe:
    if method == "fp32":
        return Recipe(method, Setting(cpu_flags()))
    if family.kitchen is None:
        reference = family.reference
        assert reference is not None, "the FP32 parent comes first"
        family.kitchen = Kitchen(
            family.config, family.model, family.checkpoint, family.splits, parent.padded, reference
        )
    return family.kitchen.recipe(method, family.folder)


def _verify(family: Family, method: str, layouts: Layouts, parent: Parent) -> Verification | None:
    alone = run_in_batches(layouts.padded, family.rows, size=1)
    if method == "fp32":
        family.fp32_logits, family.reference = alone, layouts.padded
    assert family.fp32_logits is not None, "the FP32 parent comes first"
    checks = check_invariance(
        layouts.padded,
        layouts.packed,
        family.rows,
        alone,
        num_texts=family.config.invariance.num_texts,
        max_length=family.checkpoint.tokenizer.max_length,
    )
    return compare(
        alone,
        labels=family.splits.test.labels,
        parent=f"{family.model} checkpoint" if method == "fp32" else f"{family.model}-fp32",
        parent_logits=parent.logits if method == "fp32" else family.fp32_logits,
        invariance=checks,
    )


def _refusal(config: QuantizeConfig, verification: Verification | None) -> str | None:
    if verification is None:
        return "logits that are NaN or infinite"
    return broken_bound(verification, config.invariance)


def _describe(
    family: Family,
    name: str,
    method: str,
    layouts: Layouts,
    verification: Verification,
    usage: Usage,
    warnings: list[str | None],
) -> Variant:
    mean_length = float(np.mean([len(row) for row in family.rows]))

    def relative(path: Path) -> str:
        return str(path.relative_to(family.folder))

    return Variant(
        name=name,
        model=family.model,
        precision=METHODS[method],
        method=layouts.method,
        inputs=layouts.padded.inputs,
        path=relative(layouts.files[0]),
        packed_path=relative(layouts.packed_path) if layouts.packed_path else None,
        files={relative(file): file_sha256(file) for file in layouts.files},
        size_bytes=weight_bytes(layouts.exported),
        num_parameters=family.checkpoint.num_parameters,
        flops_per_token=family.checkpoint.flops_per_token(mean_length),
        packed_flops_per_token=family.checkpoint.packed_flops_per_token(mean_length) if layouts.packed else None,
        isa=isa(),
        num_nodes=len(layouts.exported.graph.node),
        opsets={opset.domain: opset.version for opset in layouts.exported.opset_import},
        operators=operator_counts(layouts.exported),
        providers=provider_counts(layouts.padded.session),
        fused=fused_counts(layouts.exported),
        verification=verification,
        usage=usage,
        warning="; ".join(warning for warning in warnings if warning) or None,
    )


def _measure(family: Family) -> None:
    """Measure all variants of the model in one interleaved run, and mark those that do not pay here."""
    reference = f"{family.model}-fp32"
    if reference not in family.layouts:
        return
    measured = speeds(
        {name: layouts.padded for name, layouts in family.layouts.items()},
        {name: layouts.packed for name, layouts in family.layouts.items() if layouts.packed is not None},
        family.rows,
        reference=reference,
        rounds=family.config.speed_rounds,
    )
    family.variants = [with_speed(variant, measured[variant.name], reference) for variant in family.variants]


def with_speed(variant: Variant, speed: Speed, reference: str) -> Variant:
    """Return a variant with its speed, marked where it is not shown to be faster than ``reference`` on this CPU."""
    warning = variant.warning
    if variant.name != reference and speed.ratio_interval.low <= 1:
        slow = f"not worth it here: {speed.ratio_to_fp32:.2f} times the speed of {reference} on this CPU"
        warning = f"{warning}; {slow}" if warning else slow
    return variant.model_copy(update={"speed": speed, "warning": warning})


def _leave_out_unasked(family: Family) -> None:
    """Remove the FP32 parent's files where the experiment does not ask for that variant."""
    for variant in family.variants:
        if variant.name not in family.config.variants:
            for file in variant.files:
                (family.folder / file).unlink()
    family.variants = [variant for variant in family.variants if variant.name in family.config.variants]
