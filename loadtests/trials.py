"""Series of load tests of one variant on one profile: judges, overload, batching sweep. Each starts its own servers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from loadtests import capacity
from loadtests.config import LoadTestConfig
from loadtests.judges import judge_server
from loadtests.measure import Bench
from loadtests.overload import measure_overload
from loadtests.server import Target
from loadtests.suite import Subject, bundle_bench, serving
from loadtests.sweep import sweep_policies
from testbed.bundle import Bundle
from testbed.progress import say
from testbed.records import BatchingSweep, JudgeReport, OverloadReport

POLICIES = ("none", "fixed", "sorted", "packed")
JUDGED_FACTORS = (0.8, 1.3)
OVERLOAD_FACTORS = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0)
SWEEP_FRACTIONS = (0.25, 0.5, 0.75, 0.9, 1.0)


def judge_bundle(
    config: LoadTestConfig,
    *,
    bundle: Path,
    variant: str,
    profile: str,
    folder: Path,
    factors: Sequence[float] = JUDGED_FACTORS,
    duration_s: float = 15.0,
    peak_qps: float | None = None,
) -> JudgeReport:
    """Let the open loop, a closed loop and LoadGen judge one variant; ``peak_qps`` is measured unless given."""
    opened, subject = Bundle(bundle), Subject(variant, profile)
    with bundle_bench(config, opened, folder, logs=folder) as bench, serving(bench, opened, subject) as target:
        peak_qps = peak_qps or _peak_qps(bench, target)
        return judge_server(bench, target, peak_qps=peak_qps, factors=factors, duration_s=duration_s)


def overload_bundle(
    config: LoadTestConfig,
    *,
    bundle: Path,
    variant: str,
    profile: str,
    folder: Path,
    factors: Sequence[float] = OVERLOAD_FACTORS,
    duration_s: float = 5.0,
    peak_qps: float | None = None,
) -> OverloadReport:
    """Offer one variant multiples of its peak; the server knows the SLO as its queries' deadline."""
    opened, subject = Bundle(bundle), Subject(variant, profile)
    deadline = ("--slo-ms", f"{config.slo_s * 1e3:g}")
    with (
        bundle_bench(config, opened, folder, logs=folder) as bench,
        serving(bench, opened, subject, extra=deadline) as target,
    ):
        peak_qps = peak_qps or _peak_qps(bench, target)
        return measure_overload(bench, target, peak_qps=peak_qps, factors=factors, duration_s=duration_s)


def sweep_bundle(
    config: LoadTestConfig,
    *,
    bundle: Path,
    variant: str,
    profile: str,
    folder: Path,
    policies: Sequence[str] = (),
    fractions: Sequence[float] = SWEEP_FRACTIONS,
    duration_s: float = 5.0,
    peak_qps: float | None = None,
) -> BatchingSweep:
    """Offer one variant the same loads under every batching policy that it can be served with.

    Args:
        config: the section of the experiment file.
        bundle: folder with a manifest.
        variant: name in the manifest.
        profile: deployment.
        folder: gets records and raw rows.
        policies: names of the server's policies; empty for all that the variant allows.
        fractions: loads, as shares of the peak.
        duration_s: of each run.
        peak_qps: what the shares are of; measured with the server's default policy unless given.
    """
    opened, subject = Bundle(bundle), Subject(variant, profile)
    able = [name for name in POLICIES if name != "packed" or opened.manifest.variant(variant).packed_path]
    with bundle_bench(config, opened, folder, logs=folder) as bench:
        if peak_qps is None:
            with serving(bench, opened, subject) as target:
                peak_qps = _peak_qps(bench, target)

        def serve(policy: str) -> AbstractContextManager[Target]:
            return serving(bench, opened, subject, extra=("--policy", policy))

        return sweep_policies(
            bench,
            serve,
            policies=policies or able,
            loads_qps=[fraction * peak_qps for fraction in fractions],
            duration_s=duration_s,
        )


def _peak_qps(bench: Bench, target: Target) -> float:
    """Measure the peak, or take the highest load that any probe passed where no confirming run held."""
    single = bench.run(target, scenario="SingleStream", duration_s=bench.config.single_stream_s, purpose="single")
    found = capacity.find(bench, target, start_qps=capacity.guess_qps(single))
    capacity.record(bench, target.variant, target.profile, [found])
    passed = [probe.target_qps for probe in found.probes if probe.meets_slo]
    peak_qps = found.max_qps or max(passed, default=capacity.guess_qps(single))
    say(f"the peak is {peak_qps:.0f} queries/s" + ("" if found.max_qps else f", unconfirmed: {found.reason}"))
    return peak_qps
