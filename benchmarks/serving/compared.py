"""What a comparison of servers holds, and its tables: medians, and ratios within a round with their interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from contenders import OURS
from pydantic import Field
from scipy import stats

from testbed.records import Interval, Record
from testbed.records.base import Frozen

MISSING = "–"


class Run(Frozen):
    """What is kept of one load-test run; rates are right answers a second of a closed loop, else what was offered."""

    rate_qps: float
    num_ok: int
    num_errors: int
    p50_s: float | None
    p99_s: float | None
    cpu_s_per_query: float | None
    peak_rss_bytes: int | None
    other_cpu: float | None
    failed_checks: tuple[str, ...]
    rows_sha256: str


class Peak(Frozen):
    """The highest load with p99 within the objective: confirmed by a long run, or only held by a probe, or neither."""

    confirmed_qps: float | None
    probed_qps: float | None
    reason: str | None
    run: Run | None

    @property
    def words(self) -> str:
        """For people."""
        held = f"{self.confirmed_qps:.0f} queries/s" if self.confirmed_qps else "no load confirmed"
        return f"{held} within the SLO" + (f" ({self.reason})" if self.reason else "")


class Served(Frozen):
    """One server in one round; ``saturated`` by the number of users."""

    saturated: dict[str, Run]
    single: Run
    equal: Run
    peak: Peak

    @property
    def saturated_qps(self) -> float:
        """The better of its saturated rates."""
        return max(run.rate_qps for run in self.saturated.values())


class InProcess(Frozen):
    """Texts a second without a server, tokenization included, by texts in a batch."""

    padded: dict[str, float]
    packed: dict[str, float]

    @property
    def limit_qps(self) -> float:
        """The most that any way of batching makes."""
        return max([*self.padded.values(), *self.packed.values()])


class Round(Frozen):
    """Every server once; ``absent`` says why one has no figures."""

    number: int
    in_process: InProcess
    servers: dict[str, Served] = Field(default_factory=dict)
    absent: dict[str, str] = Field(default_factory=dict)

    def with_server(self, name: str, found: Served) -> Self:
        """Return the round with one more server."""
        return self.model_copy(update={"servers": self.servers | {name: found}})

    def with_absence(self, name: str, why: str) -> Self:
        """Return the round without this server, and the reason."""
        return self.model_copy(update={"absent": self.absent | {name: why}})


class Comparison(Record):
    """All rounds."""

    variant: str
    slo_s: float
    equal_qps: float
    rounds: tuple[Round, ...] = ()

    def round(self, number: int) -> Round | None:
        """Return a round as far as it got, None before its start."""
        return next((each for each in self.rounds if each.number == number), None)

    def with_round(self, changed: Round) -> Self:
        """Return the comparison with a round that was begun or went on."""
        kept = {each.number: each for each in self.rounds} | {changed.number: changed}
        return self.model_copy(update={"rounds": tuple(kept[number] for number in sorted(kept))})

    def last_peak_qps(self, name: str) -> float | None:
        """Return what this server's search found last."""
        peaks = [each.servers[name].peak.confirmed_qps for each in self.rounds if name in each.servers]
        return next((peak for peak in reversed(peaks) if peak), None)

    def names(self) -> list[str]:
        """Return the servers that have figures, the fastest first."""
        found = {name for each in self.rounds for name in each.servers}
        return sorted(found, key=lambda name: -_median([one.saturated_qps for one in self.of(name)]))

    def of(self, name: str) -> list[Served]:
        """Return what each round says of a server."""
        return [each.servers[name] for each in self.rounds if name in each.servers]


def as_markdown(found: Comparison) -> str:
    """Return the page of figures: one line a server, then the ratios."""
    users = sorted({int(users) for each in found.rounds for one in each.servers.values() for users in one.saturated})
    equal = f"at {found.equal_qps:g}/s:"
    heads = ["server", *(f"saturated/s, {count} users" for count in users), f"peak/s, p99 ≤ {found.slo_s * 1e3:g} ms"]
    heads += ["alone: p50 ms", f"{equal} p50 ms", "p99 ms", "VALID", "CPU ms a query", "peak RSS MB", "others' CPU"]
    lines = [_row(heads), "|---" * len(heads) + "|"]
    lines += [_row(_cells(name, found.of(name), users)) for name in found.names()]
    return "\n".join(
        [
            f"`{found.variant}`, one core each. Medians of {len(found.rounds)} rounds, each of them in parentheses.",
            "A peak in [brackets] was held by short probes and confirmed by no longer run.",
            "",
            *lines,
            "",
            *_reasons(found),
            *_limits(found),
            "",
            *_ratio_table(found),
            "",
            _machine(found),
            "",
        ]
    )


def ratio(values: Sequence[float]) -> tuple[float, Interval | None]:
    """Return the geometric mean of ratios and Student's 95 % interval of their logarithms; None for fewer than two."""
    logs = np.log(values)
    mean = float(logs.mean())
    if len(values) <= 1:
        return math.exp(mean), None
    half = float(stats.sem(logs) * stats.t.ppf(0.975, len(values) - 1))
    return math.exp(mean), Interval(
        low=math.exp(mean - half), high=math.exp(mean + half), method="student t of logarithms"
    )


def ratios_to_best_peer(found: Comparison, figure: Callable[[Served], float | None]) -> list[tuple[float, str]]:
    """Return our figure over the best peer's in each round that has both, and that peer's name."""
    ratios = []
    for each in found.rounds:
        figures = {name: value for name, one in each.servers.items() if (value := figure(one)) is not None}
        peers = {name: value for name, value in figures.items() if name != OURS}
        if OURS in figures and peers:
            best = max(peers, key=lambda name: peers[name])
            ratios.append((figures[OURS] / peers[best], best))
    return ratios


def _ratio_table(found: Comparison) -> list[str]:
    peak: Callable[[Served], float | None] = lambda one: one.peak.confirmed_qps  # noqa: E731
    rows: list[tuple[str, list[tuple[float, str]]]] = [
        ("saturated rate over the best peer's", ratios_to_best_peer(found, lambda one: one.saturated_qps)),
        ("peak within the objective over the best peer's", ratios_to_best_peer(found, peak)),
        ("in-process limit over the best peer's saturated rate", _limit_ratios(found)),
        (
            "saturated rate over the in-process limit",
            [
                (each.servers[OURS].saturated_qps / each.in_process.limit_qps, "in process")
                for each in found.rounds
                if OURS in each.servers
            ],
        ),
    ]
    lines = [f"| {OURS} | each round | mean (95 % interval) |", "|---|---|---|"]
    for words, each in rows:
        if not each:
            lines.append(f"| {words} | {MISSING} | {MISSING} |")
            continue
        mean, interval = ratio([value for value, _ in each])
        between = f" ({interval.low:.2f} to {interval.high:.2f})" if interval else ""
        rounds = ", ".join(f"{value:.2f} ({name})" for value, name in each)
        lines.append(f"| {words} | {rounds} | **{mean:.2f}**{between} |")
    lines += ["", "The third line is the most that any server could lead the best peer by on this machine."]
    return lines


def _limit_ratios(found: Comparison) -> list[tuple[float, str]]:
    ratios = []
    for each in found.rounds:
        peers = {name: one.saturated_qps for name, one in each.servers.items() if name != OURS}
        if peers:
            best = max(peers, key=lambda name: peers[name])
            ratios.append((each.in_process.limit_qps / peers[best], best))
    return ratios


def _cells(name: str, each: Sequence[Served], users: Sequence[int]) -> list[str]:
    peaks = [one.peak for one in each]
    confirmed = [peak.confirmed_qps for peak in peaks if peak.confirmed_qps]
    equal = [one.equal for one in each]
    return [
        name,
        *(_rates([one.saturated[str(count)].rate_qps for one in each]) for count in users),
        (f"**{_median(confirmed):.0f}**" if confirmed else MISSING) + f" ({', '.join(map(_peak, peaks))})",
        _ms([one.single.p50_s for one in each]),
        _ms([run.p50_s for run in equal]),
        _ms([run.p99_s for run in equal]),
        f"{sum(not run.failed_checks for run in equal)} of {len(equal)}",
        _ms([run.cpu_s_per_query for run in equal]),
        f"{_median([run.peak_rss_bytes / 1e6 for run in equal if run.peak_rss_bytes]):.0f}",
        f"{_median([run.other_cpu for run in equal if run.other_cpu is not None]):.2f}",
    ]


def _reasons(found: Comparison) -> list[str]:
    """Say of every missing figure why it is missing."""
    lines = [
        f"- {name}, round {each.number}: no peak confirmed: {one.peak.reason}"
        for each in found.rounds
        for name, one in each.servers.items()
        if one.peak.reason
    ]
    lines += [
        f"- {name}, round {each.number}: INVALID at the equal load: {', '.join(one.equal.failed_checks)}"
        for each in found.rounds
        for name, one in each.servers.items()
        if one.equal.failed_checks
    ]
    lines += [
        f"- {name}, round {each.number}: absent: {why}" for each in found.rounds for name, why in each.absent.items()
    ]
    return [*lines, ""] if lines else []


def _limits(found: Comparison) -> list[str]:
    told = []
    for way, words in {"padded": "the peers' classifier, padded", "packed": "this project's engine, packed"}.items():
        rates: dict[str, dict[str, float]] = {str(each.number): getattr(each.in_process, way) for each in found.rounds}
        sizes = list(dict.fromkeys(size for one in rates.values() for size in one))
        each = [f"batch {size}: {_rates([one[size] for one in rates.values() if size in one])}" for size in sizes]
        told.append(f"- {words}: {'; '.join(each)}")
    return ["In process, no server, same core, tokenization included, texts/s:", "", *told]


def _machine(found: Comparison) -> str:
    machine = found.machine
    return (
        f"Machine: {machine.cpu_model}, {machine.logical_cores} logical cores, {machine.os}; "
        f"commit {(found.git_commit or 'unknown')[:12]}, {found.created_at:%Y-%m-%d}."
    )


def _rates(rates: Sequence[float]) -> str:
    return f"**{_median(rates):.0f}** ({', '.join(f'{rate:.0f}' for rate in rates)})"


def _peak(peak: Peak) -> str:
    if peak.confirmed_qps:
        return f"{peak.confirmed_qps:.0f}"
    return f"[{peak.probed_qps:.0f}]" if peak.probed_qps else MISSING


def _ms(seconds: Sequence[float | None]) -> str:
    known = [value * 1e3 for value in seconds if value is not None]
    return f"{_median(known):.2f}" if known else MISSING


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values)) if values else math.nan


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
