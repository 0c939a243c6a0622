"""What was spent once: the cost of each stage, and of what each variant needed before it could serve."""

from __future__ import annotations

from report import model
from report.config import ReportConfig
from report.energy import add_energies, energy_of, grams
from report.evidence import Evidence
from report.prices import PriceBook
from testbed.records import Accuracy, BundleManifest, Energy, Machine, TrainingRun, Usage, Variant
from testbed.records.cost import OneTimeCost, StageCost


def stage_costs(evidence: Evidence, config: ReportConfig, book: PriceBook) -> dict[str, StageCost]:
    """Return ``teacher``, ``student``, ``quantize`` and ``trials``, those that there are.

    ``trials`` is not measured: it is the configured share of the training stages' cost.
    """
    costs = {name: _training_cost(run, config, book) for name, run in evidence.training.items()}
    manifest = evidence.manifest
    costs["quantize"] = _cost("quantize", manifest.usage, manifest.machine, config, book)
    if config.trials_share:
        costs["trials"] = _trials(costs, config)
    return costs


def one_time_cost(variant: Variant, evidence: Evidence, config: ReportConfig, book: PriceBook) -> OneTimeCost | None:
    """Return what a variant needed before it could serve, or None where its training has no record.

    The teacher is needed by all; the student only by its own variants; of the bundle's making, only the variant's own
    share and that of the variants it was made from.
    """
    needed = ["teacher"] if variant.model == "teacher" else ["teacher", "student"]
    if any(stage not in evidence.training for stage in needed):
        return None
    stages = {stage: _training_cost(evidence.training[stage], config, book) for stage in needed}
    manifest = evidence.manifest
    for made in _chain(variant, manifest):
        stages[f"export {made.name}"] = _cost(made.name, made.usage, manifest.machine, config, book)
    if config.trials_share:
        stages["trials"] = _trials({name: stages[name] for name in needed}, config)
    energy = add_energies(energy_of_stage(stage) for stage in stages.values())
    return OneTimeCost(
        parts_usd={name: stage.cost_usd for name, stage in stages.items()},
        total_usd=sum(stage.cost_usd for stage in stages.values()),
        energy_j=energy.energy_j,
        energy_method=energy.method,
        gco2e=grams(energy, book.grid(config.training_grid).gco2e_per_kwh),
    )


def energy_of_stage(stage: StageCost) -> Energy:
    """Return a stage's energy as one value."""
    return Energy(energy_j=stage.energy_j, method=stage.energy_method, reason=stage.energy_reason)


def _training_cost(run: TrainingRun, config: ReportConfig, book: PriceBook) -> StageCost:
    cost = _cost(run.stage, run.usage, run.machine, config, book, accuracy=run.accuracy)
    flops_6nd = model.training_flops_6nd(run.model.num_parameters, run.num_padded_tokens)
    return cost.model_copy(update={"model_flops": run.model_flops, "flops_6nd": flops_6nd})


def _cost(
    stage: str,
    usage: Usage,
    machine: Machine,
    config: ReportConfig,
    book: PriceBook,
    *,
    accuracy: Accuracy | None = None,
) -> StageCost:
    cores = None if usage.device_s is not None else machine.usable_cores
    price = book.price(config, machine, use="training", cores=cores)
    energy = energy_of(usage, price, cores=cores)
    hours = usage.wall_s / model.SECONDS_PER_HOUR
    return StageCost(
        stage=stage,
        wall_s=usage.wall_s,
        device_hours=hours,
        energy_j=energy.energy_j,
        energy_method=energy.method,
        energy_reason=energy.reason,
        cost_usd=hours * price.usd_per_hour,
        gco2e=grams(energy, book.grid(config.training_grid).gco2e_per_kwh),
        accuracy=accuracy,
        price=price,
    )


def _trials(finals: dict[str, StageCost], config: ReportConfig) -> StageCost:
    trained = [cost for name, cost in finals.items() if name in {"teacher", "student"}]
    share = config.trials_share
    energy = add_energies(energy_of_stage(cost) for cost in trained)
    estimated = energy.energy_j is not None
    return StageCost(
        stage="trials",
        wall_s=share * sum(cost.wall_s for cost in trained),
        device_hours=share * sum(cost.device_hours for cost in trained),
        energy_j=share * energy.energy_j if energy.energy_j is not None else None,
        energy_method="estimate" if estimated else None,
        energy_reason=f"assumed: {share:.0%} of the final runs" if estimated else energy.reason,
        cost_usd=share * sum(cost.cost_usd for cost in trained),
        gco2e=None if any(cost.gco2e is None for cost in trained) else share * sum(c.gco2e or 0.0 for c in trained),
        accuracy=None,
    )


def _chain(variant: Variant, manifest: BundleManifest) -> list[Variant]:
    by_name = {other.name: other for other in manifest.variants}
    chain = [variant]
    while (parent := by_name.get(chain[-1].verification.parent)) and parent.model == variant.model:
        if parent in chain:
            break
        chain.append(parent)
    return chain[::-1]
