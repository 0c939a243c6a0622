"""What was spent once: the cost of each stage, and of what each variant needed before it could serve."""

from __future__ import annotations

from collections.abc import Iterable

from report import model
from report.config import ReportConfig
from report.energy import add_energies, energy_of, grams
from report.evidence import STAGES, Evidence
from report.prices import PriceBook
from report.trials import Trials, cost_interval, read_trials
from testbed.records import (
    Accuracy,
    BundleManifest,
    Energy,
    Machine,
    TrainingRun,
    Usage,
    Variant,
)
from testbed.records.cost import OneTimeCost, StageCost
from testbed.records.quantization import QuantizationSearch

# The variant whose method the search chooses: the search ran while it was made, inside of its metered window.
SEARCHED = "-int8-auto"


def stage_costs(evidence: Evidence, config: ReportConfig, book: PriceBook) -> dict[str, StageCost]:
    """Return ``teacher``, ``student``, ``trials``, ``quantize`` and ``trials assumed``, those that there are.

    ``trials`` is metered: the earlier trainings that ``report.trials`` names, and the quantization searches, which
    ``quantize`` then leaves out. ``trials assumed`` is the configured share of the training stages' cost.
    """
    trials = read_trials(config, evidence)
    costs = {name: _training_cost(run, trials, config, book) for name, run in evidence.training.items()}
    manifest = evidence.manifest
    searches = [_search_cost(search, config, book) for search in trials.searches.values()]
    tried = [*_earlier(trials, trials.training, config, book), *searches]
    if tried:
        costs["trials"] = _sum("trials", tried)
    whole = _cost("quantize", manifest.usage, manifest.machine, config, book)
    costs["quantize"] = _without(whole, searches)
    if config.trials_share:
        costs["trials assumed"] = _assumed(costs, config)
    return costs


def one_time_cost(variant: Variant, evidence: Evidence, config: ReportConfig, book: PriceBook) -> OneTimeCost | None:
    """Return what a variant needed before it could serve, or None where its training has no record.

    The teacher is needed by all; the student only by its own variants; of the bundle's making, only the variant's own
    share and that of the variants it was made from; of the trials, those of the models that it needed, and the search
    that chose how it was made.
    """
    needed = ["teacher"] if variant.model == "teacher" else ["teacher", "student"]
    if any(stage not in evidence.training for stage in needed):
        return None
    trials = read_trials(config, evidence)
    stages = {stage: _training_cost(evidence.training[stage], trials, config, book) for stage in needed}
    tried = _earlier(trials, needed, config, book)
    manifest = evidence.manifest
    for made in _chain(variant, manifest):
        cost = _cost(made.name, made.usage, manifest.machine, config, book)
        search = trials.searches.get(made.model)
        if search and made.name.endswith(SEARCHED):
            searched = _search_cost(search, config, book)
            cost = _without(cost, [searched])
            tried.append(searched)
        stages[f"export {made.name}"] = cost
    if tried:
        stages["trials"] = _sum("trials", tried)
    if config.trials_share:
        stages["trials assumed"] = _assumed({name: stages[name] for name in needed}, config)
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


def _training_cost(run: TrainingRun, trials: Trials, config: ReportConfig, book: PriceBook) -> StageCost:
    cost = _cost(run.stage, run.usage, run.machine, config, book, accuracy=run.accuracy)
    repeats = [_cost(run.stage, each.usage, each.machine, config, book).cost_usd for each in trials.repeats_of(run)]
    interval, reason = cost_interval(repeats)
    return cost.model_copy(
        update={
            "model_flops": run.model_flops,
            "flops_6nd": model.training_flops_6nd(run.model.num_parameters, run.num_padded_tokens),
            "cost_interval": interval,
            "cost_interval_reason": reason,
        }
    )


def _earlier(trials: Trials, stages: Iterable[str], config: ReportConfig, book: PriceBook) -> list[StageCost]:
    runs = [run for stage in stages for run in trials.training.get(stage, {}).values()]
    return [_cost(run.stage, run.usage, run.machine, config, book) for run in runs]


def _search_cost(search: QuantizationSearch, config: ReportConfig, book: PriceBook) -> StageCost:
    return _cost(f"search {search.model}", search.usage, search.machine, config, book)


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


def _sum(stage: str, parts: list[StageCost]) -> StageCost:
    """Return several costs as one stage."""
    energy = add_energies(energy_of_stage(part) for part in parts)
    return StageCost(
        stage=stage,
        wall_s=sum(part.wall_s for part in parts),
        device_hours=sum(part.device_hours for part in parts),
        energy_j=energy.energy_j,
        energy_method=energy.method,
        energy_reason=energy.reason,
        cost_usd=sum(part.cost_usd for part in parts),
        gco2e=None if any(part.gco2e is None for part in parts) else sum(part.gco2e or 0.0 for part in parts),
        accuracy=None,
        price=parts[0].price,
    )


def _without(cost: StageCost, parts: list[StageCost]) -> StageCost:
    """Return a cost without what happened inside of it and is told apart."""
    if not parts:
        return cost
    part = _sum(cost.stage, parts)
    energy_j = gco2e = None
    if cost.energy_j is not None and part.energy_j is not None and cost.energy_method == part.energy_method:
        energy_j = max(0.0, cost.energy_j - part.energy_j)
    if cost.gco2e is not None and part.gco2e is not None:
        gco2e = max(0.0, cost.gco2e - part.gco2e)
    return cost.model_copy(
        update={
            "wall_s": cost.wall_s - part.wall_s,
            "device_hours": cost.device_hours - part.device_hours,
            "energy_j": energy_j,
            "energy_method": cost.energy_method if energy_j is not None else None,
            "energy_reason": cost.energy_reason if energy_j is not None else part.energy_reason or cost.energy_reason,
            "cost_usd": cost.cost_usd - part.cost_usd,
            "gco2e": gco2e,
        }
    )


def _assumed(finals: dict[str, StageCost], config: ReportConfig) -> StageCost:
    trained = [cost for name, cost in finals.items() if name in STAGES]
    share = config.trials_share
    whole = _sum("trials assumed", trained)
    estimated = whole.energy_j is not None
    return whole.model_copy(
        update={
            "wall_s": share * whole.wall_s,
            "device_hours": share * whole.device_hours,
            "energy_j": share * whole.energy_j if whole.energy_j is not None else None,
            "energy_method": "estimate" if estimated else None,
            "energy_reason": f"assumed: {share:.0%} of the final runs" if estimated else whole.energy_reason,
            "cost_usd": share * whole.cost_usd,
            "gco2e": None if whole.gco2e is None else share * whole.gco2e,
        }
    )


def _chain(variant: Variant, manifest: BundleManifest) -> list[Variant]:
    by_name = {other.name: other for other in manifest.variants}
    chain = [variant]
    while (parent := by_name.get(chain[-1].verification.parent)) and parent.model == variant.model:
        if parent in chain:
            break
        chain.append(parent)
    return chain[::-1]
