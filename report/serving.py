"""One row of the verdict: a variant on a profile, its load tests, and what a query costs there."""

from __future__ import annotations

import statistics

from report import model
from report.config import ReportConfig
from report.energy import energy_of, grams
from report.evidence import Evidence
from report.prices import PriceBook
from report.spending import one_time_cost
from testbed.records import Capacity, Energy, Interval, LoadTestRun, Proof, Usage
from testbed.records.cost import AtTraffic, Price, ServingCost

GPU_PROVIDERS = ("CUDA", "Tensorrt")


def serving_row(
    variant_name: str, profile: str, evidence: Evidence, config: ReportConfig, book: PriceBook
) -> ServingCost:
    """Return the row of one variant on one profile; a row that is not VALID has figures but no cost."""
    variant = evidence.manifest.variant(variant_name)
    runs = evidence.runs_of(variant_name, profile)
    capacity = evidence.capacity_of(variant_name, profile)
    confirming = confirming_run(capacity, runs)
    faults = _faults(capacity, confirming)
    qps = capacity.max_qps_at_slo if capacity and not faults else None
    cores = served_cores(confirming or next(iter(runs.values()), None))
    price = book.price(config, evidence.machine_of(profile), use=profile, cores=cores)
    usd = None if qps is None else model.rent_per_query(price.usd_per_hour, qps)
    energy, idle_watts = _energy(confirming, price, cores)
    grid = book.grid(config.serving_grid).gco2e_per_kwh
    co2e = grams(energy, grid)
    single = next((run for run in runs.values() if run.scenario == "SingleStream" and run.latency), None)
    row = ServingCost(
        variant=variant_name,
        profile=profile,
        valid=not faults,
        invalid_reasons=faults,
        max_qps_at_slo=capacity.max_qps_at_slo if capacity else None,
        latency_p50_s=_quantile(confirming, "p50"),
        latency_p99_s=_quantile(confirming, "p99"),
        single_stream_p50_s=_quantile(single, "p50"),
        single_stream_p90_s=_quantile(single, "p90"),
        cost_usd_per_million_queries=None if usd is None else usd * 1e6,
        energy_j_per_query=energy.energy_j,
        energy_method=energy.method,
        accuracy=variant.verification.accuracy,
        size_bytes=variant.size_bytes,
        peak_rss_bytes=confirming.server.loaded.peak_rss_bytes if confirming and confirming.server else None,
        proof=_proof(confirming, runs),
        qps_interval=capacity.interval if capacity else None,
        latency_p99_interval=confirming.latency.quantiles["p99"].interval
        if confirming and confirming.latency
        else None,
        cost_interval=_cost_interval(capacity, price) if usd is not None else None,
        saturation_qps=_saturation_qps(evidence, variant_name, profile),
        energy_reason=energy.reason,
        idle_watts=idle_watts,
        gco2e_per_million_queries=None if co2e is None else co2e * 1e6,
        price=price,
        one_time=one_time_cost(variant, evidence, config, book),
        flops_2nd_per_query=model.inference_flops_2nd(
            variant.num_parameters, statistics.fmean(evidence.manifest.lengths)
        ),
        runs=tuple(f"loads/{name}" for name in runs),
    )
    return row.model_copy(update={"at_traffic": at_traffic(row, config)})


def confirming_run(capacity: Capacity | None, runs: dict[str, LoadTestRun]) -> LoadTestRun | None:
    """Return the run that stands for a capacity: the confirmation with the median p99, an INVALID one first."""
    named = [runs[name] for name in (capacity.confirmation if capacity else ()) if name in runs]
    invalid = [run for run in named if not run.valid]
    if invalid:
        return invalid[0]
    ranked = sorted((run for run in named if run.latency), key=lambda run: _quantile(run, "p99") or 0.0)
    return ranked[(len(ranked) - 1) // 2] if ranked else None


def served_cores(run: LoadTestRun | None) -> float | None:
    """Return how many cores a server was given, or None where a GPU ran the graph."""
    if run is None:
        return 1.0
    if run.proof and any(name.startswith(GPU_PROVIDERS) for name in run.proof.providers):
        return None
    if run.server and run.server.cores:
        return float(len(run.server.cores))
    return float(run.proof.threads) if run.proof else run.machine.usable_cores


def at_traffic(row: ServingCost, config: ReportConfig) -> AtTraffic | None:
    """Return the row at the experiment's traffic, or None without traffic or without a capacity."""
    traffic, qps, price = config.traffic, row.max_qps_at_slo, row.price
    if traffic is None or qps is None or price is None or not row.valid:
        return None
    num = model.replicas(traffic.peak_qps, qps, config.peak_utilisation)
    usd = model.fleet_per_query(price.usd_per_hour, num, traffic.mean_qps)
    energy_j = idle_share = None
    if row.energy_j_per_query is not None and row.idle_watts is not None:
        loaded_w = row.energy_j_per_query * qps
        energy_j = model.idle_aware_j_per_query(row.idle_watts, loaded_w, qps, num, traffic.mean_qps)
        idle_share = row.idle_watts * num / traffic.mean_qps / energy_j if energy_j else None
    return AtTraffic(
        mean_qps=traffic.mean_qps,
        peak_qps=traffic.peak_qps,
        replicas=num,
        utilisation=model.utilisation(traffic.mean_qps, num, qps),
        usd_per_month=price.usd_per_hour * num * model.HOURS_PER_MONTH,
        usd_per_million_queries=usd * 1e6,
        energy_j_per_query=energy_j,
        idle_energy_share=idle_share,
    )


def _proof(confirming: LoadTestRun | None, runs: dict[str, LoadTestRun]) -> Proof | None:
    """Return what answered, by the confirming run or else by any other of the row."""
    told = [run.proof for run in (confirming, *runs.values()) if run and run.proof]
    return told[0] if told else None


def _saturation_qps(evidence: Evidence, variant: str, profile: str) -> float | None:
    steady = evidence.steady_runs_of(variant, profile).values()
    return max((run.goodput_qps for run in steady if run.valid), default=None)


def _faults(capacity: Capacity | None, confirming: LoadTestRun | None) -> tuple[str, ...]:
    if capacity is None:
        return ("no capacity search was run",)
    if capacity.max_qps_at_slo is None:
        return ((capacity.reason or "the SLO was not kept at any load").partition(":")[0],)
    if confirming is None:
        return ("its confirming run is missing",)
    return tuple(check.name for check in confirming.checks if not check.passed) if not confirming.valid else ()


def _energy(run: LoadTestRun | None, price: Price, cores: float | None) -> tuple[Energy, float | None]:
    """Return joules a query in the run, and the watts of the idle server by the same method."""
    if run is None or run.server is None or not run.num_ok:
        return Energy(reason="no metered run"), None
    loaded = energy_of(run.server.loaded, price, cores=cores)
    if loaded.energy_j is None:
        return loaded, None
    per_query = Energy(energy_j=loaded.energy_j / run.num_ok, method=loaded.method, reason=loaded.reason)
    return per_query, _idle_watts(run.server.idle, price, cores, method=loaded.method)


def _idle_watts(idle: Usage | None, price: Price, cores: float | None, *, method: str | None) -> float | None:
    if idle is None or not idle.wall_s:
        return price.watts_idle if method == "estimate" else None
    energy = energy_of(idle, price, cores=cores)
    return energy.energy_j / idle.wall_s if energy.energy_j is not None and energy.method == method else None


def _cost_interval(capacity: Capacity | None, price: Price) -> Interval | None:
    if capacity is None or capacity.interval is None or capacity.interval.low <= 0:
        return None
    bounds = capacity.interval
    return Interval(
        low=model.rent_per_query(price.usd_per_hour, bounds.high) * 1e6,
        high=model.rent_per_query(price.usd_per_hour, bounds.low) * 1e6,
        level=bounds.level,
        method=bounds.method,
    )


def _quantile(run: LoadTestRun | None, name: str) -> float | None:
    return run.latency.quantiles[name].value_s if run and run.latency else None
