"""The report's check of what it rests on: validity rules, proof of execution, estimates, repeats, provenance."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from report.evidence import Evidence
from testbed.records import Check, Variant, file_sha256
from testbed.records.cost import CostReport, Finding

FLIP_LIMIT = 0.0
WITHIN = 0.15


def audit(report: CostReport, evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings, faults first."""
    found = [
        *_checks(evidence),
        _invalid(evidence),
        *_no_capacity(evidence),
        *_proof(report, evidence),
        *_variants(evidence),
        _repeats(report),
        _energy(report),
        _prices(report),
        _bundle(evidence),
        _machines(evidence),
        _commits(evidence),
        *_queueing(report),
        *_judges(evidence),
    ]
    rank = {"fault": 0, "note": 1, "ok": 2}
    return tuple(sorted(found, key=lambda finding: rank[finding.status]))


def _checks(evidence: Evidence) -> list[Finding]:
    """Return one finding a validity rule, over all runs that it was applied to."""
    of_rule: dict[str, list[tuple[str, Check]]] = defaultdict(list)
    for name, run in evidence.loads.items():
        for check in run.checks:
            of_rule[check.name].append((name, check))
    return [_rule(rule, judged) for rule, judged in of_rule.items()]


def _rule(rule: str, judged: list[tuple[str, Check]]) -> Finding:
    failed = [(name, check) for name, check in judged if not check.passed]
    bound = judged[0][1].bound
    if not failed:
        return Finding(status="ok", subject=rule, text=f"kept by all {len(judged)} runs ({bound})")
    name, check = failed[0]
    measured = "no figure" if check.measured is None else f"{check.measured:.4g}"
    text = f"broken by {len(failed)} of {len(judged)} runs, such as {name}: {measured}, needed {bound}; {check.advice}"
    return Finding(status="note", subject=rule, text=text)


def _invalid(evidence: Evidence) -> Finding:
    invalid = [name for name, run in evidence.loads.items() if not run.valid]
    confirming = {name for capacity in evidence.capacities.values() for name in capacity.confirmation}
    if not invalid:
        return Finding(status="ok", subject="validity", text=f"all {len(evidence.loads)} runs are VALID")
    if set(invalid) & confirming:
        return Finding(status="fault", subject="validity", text=f"confirming runs are INVALID: {', '.join(invalid)}")
    text = f"{len(invalid)} of {len(evidence.loads)} runs are INVALID and support no figure: {', '.join(invalid)}"
    return Finding(status="note", subject="validity", text=text)


def _no_capacity(evidence: Evidence) -> list[Finding]:
    """Return one finding a row without a capacity, with all that was tried."""
    return [
        Finding(
            status="note", subject=f"capacity, {each.variant} on {each.profile}", text=each.reason or "none was found"
        )
        for each in evidence.capacities.values()
        if each.max_qps_at_slo is None
    ]


def _proof(report: CostReport, evidence: Evidence) -> list[Finding]:
    """Return one finding a row: what ran it, as the server itself reported."""
    findings = []
    for row in report.serving:
        subject = f"proof, {row.variant} on {row.profile}"
        if row.proof is None:
            findings.append(Finding(status="fault", subject=subject, text="the server did not report what it ran"))
            continue
        nodes = ", ".join(f"{count} nodes on {provider}" for provider, count in row.proof.providers.items())
        isa = " ".join(row.proof.isa) or "no flags"
        text = f"{nodes}; {row.proof.threads} threads; {row.proof.precision}; {isa}; file {row.proof.file_sha256[:12]}"
        variant = evidence.manifest.variant(row.variant)
        matches = row.proof.precision == variant.precision
        findings.append(Finding(status="ok" if matches else "fault", subject=subject, text=text))
    return findings


def _variants(evidence: Evidence) -> list[Finding]:
    refused = [
        Finding(status="note", subject=f"variant {each.name}", text=f"left out of the bundle: {each.reason}")
        for each in evidence.manifest.refused
    ]
    return [*refused, *(_variant(variant) for variant in evidence.manifest.variants)]


def _variant(variant: Variant) -> Finding:
    checked, subject = variant.verification, f"variant {variant.name}"
    if not checked.all_finite:
        return Finding(status="fault", subject=subject, text="its outputs are not all finite")
    bounds = checked.difference_interval
    text = (
        f"{checked.agreement:.1%} of labels as {checked.parent}, accuracy {checked.accuracy_difference:+.4f} "
        f"({bounds.low:+.4f} to {bounds.high:+.4f}), largest logit difference {checked.max_logit_difference:.2g}"
    )
    if checked.batch_flip_rate is not None:
        text += f"; batch-mates change {checked.batch_flip_rate:.1%} of its labels"
    uncertain = (checked.batch_flip_rate or 0.0) > FLIP_LIMIT
    return Finding(status="note" if uncertain or variant.warning else "ok", subject=subject, text=_with(text, variant))


def _with(text: str, variant: Variant) -> str:
    return f"{text}; {variant.warning}" if variant.warning else text


def _repeats(report: CostReport) -> Finding:
    single = [f"{row.variant} on {row.profile}" for row in report.serving if row.qps_interval is None and row.valid]
    if not single:
        return Finding(status="ok", subject="repeats", text="every capacity was confirmed more than once")
    text = f"confirmed once, so without an interval: the capacity of {', '.join(single)}"
    return Finding(status="note", subject="repeats", text=text)


def _energy(report: CostReport) -> Finding:
    methods = {row.energy_method for row in report.serving} | {c.energy_method for c in report.training.values()}
    if methods <= {"rapl", "counter"}:
        return Finding(status="ok", subject="energy", text=f"counted by {', '.join(sorted(map(str, methods)))}")
    if None in methods:
        return Finding(status="note", subject="energy", text="some windows have no energy figure, see their reasons")
    return Finding(status="note", subject="energy", text="estimated from the price book's watts, not counted")


def _prices(report: CostReport) -> Finding:
    bases = {row.price.basis for row in report.serving if row.price}
    bases |= {cost.price.basis for cost in report.training.values() if cost.price}
    if bases == {"matched"}:
        return Finding(status="ok", subject="prices", text="the measured machine is in the price book")
    if "projection" in bases:
        text = "a projection: measured speed of an unknown machine at the price of another, core for core"
        return Finding(status="note", subject="prices", text=text)
    return Finding(status="note", subject="prices", text="the experiment file says what the machine is")


def _bundle(evidence: Evidence) -> Finding:
    current = file_sha256(evidence.run / "bundle" / "manifest.json")
    stale = [name for name, run in evidence.loads.items() if run.parents.get("bundle", current) != current]
    if stale:
        text = f"{len(stale)} load tests were made with an earlier manifest (same model files): {stale[0]}, …"
        return Finding(status="note", subject="bundle", text=text)
    return Finding(status="ok", subject="bundle", text=f"all load tests served manifest {current[:12]}")


def _machines(evidence: Evidence) -> Finding:
    """Say whether training, export and serving ran on one machine; each is charged at its own machine's price."""
    made = {f"the {stage}": run.machine for stage, run in evidence.training.items()}
    made |= {"the bundle": evidence.manifest.machine}
    made |= {f"{profile} load tests": evidence.machine_of(profile) for _, profile in evidence.rows()}
    names = {what: f"{m.cpu_model} ({m.usable_cores:g} cores)" for what, m in made.items()}
    if len(set(names.values())) == 1:
        return Finding(status="ok", subject="machines", text=f"everything was made on {next(iter(names.values()))}")
    text = "; ".join(f"{what} on {name}" for what, name in names.items())
    return Finding(status="note", subject="machines", text=f"several machines, each charged at its own price: {text}")


def _commits(evidence: Evidence) -> Finding:
    records = [*evidence.training.values(), evidence.manifest, *evidence.measured().values()]
    commits = {record.git_commit for record in records}
    shown = ", ".join(sorted(commit[:12] if commit else "no checkout" for commit in commits))
    dirty = any(commit is None or commit.endswith("-dirty") for commit in commits)
    if len(commits) == 1 and not dirty:
        return Finding(status="ok", subject="commit", text=f"all records were made at {shown}")
    return Finding(status="note", subject="commit", text=f"records of several or changed commits: {shown}")


def _queueing(report: CostReport) -> list[Finding]:
    """Hold the measured latencies against a simulation that knows only batch times: do they explain each other?"""
    checks = [check for check in report.simulation if (check.share_of_capacity or 0.0) <= 1]
    if not checks:
        return []
    worst = max(abs(error) for check in checks for error in (check.p50_error, check.p99_error))
    text = (
        f"up to the capacity, p50 and p99 simulated from each run's batch times are within {worst:.0%} of the measured "
        f"ones, over {len(checks)} runs"
    )
    return [Finding(status="ok" if worst <= WITHIN else "note", subject="queueing", text=text)]


def _judges(evidence: Evidence) -> list[Finding]:
    """Return one finding a server that several load generators judged, with what a closed loop would have hidden."""
    findings = []
    for report in evidence.judges:
        hidden = ", ".join(f"{value:.2g}× at {load}× the peak" for load, value in report.omission_factors.items())
        text = "; ".join(report.disagreements) or "open loop, closed loop and LoadGen agree"
        if hidden:
            text += f"; p99 of the open loop over the closed one: {hidden}"
        status: Literal["ok", "note"] = "note" if report.disagreements else "ok"
        subject = f"judges, {report.variant} on {report.profile}"
        findings.append(Finding(status=status, subject=subject, text=text))
    return findings
