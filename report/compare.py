"""Two runs side by side: what changed, by how much, and whether that is more than their intervals allow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from report import words
from testbed.records import Interval, load_as
from testbed.records.cost import CostReport, ServingCost


@dataclass(frozen=True)
class Change:
    """One figure in two runs.

    Attributes:
        subject: the row or stage.
        figure: its name with its unit.
        before, after: None where a run has none.
        significant: True where the intervals do not overlap, False where they do, None without intervals.
    """

    subject: str
    figure: str
    before: float | None
    after: float | None
    significant: bool | None

    @property
    def relative(self) -> float | None:
        """After over before, minus one."""
        if not self.before or self.after is None:
            return None
        return self.after / self.before - 1

    @property
    def verdict(self) -> str:
        """In a word."""
        if self.before is None or self.after is None:
            return "only in one run"
        if self.significant is None:
            return "the same" if self.before == self.after else "no interval"
        return "significant" if self.significant else "within the intervals"


def compare_runs(before: Path, after: Path) -> list[Change]:
    """Return every figure that both reports (or one of them) have, rows first, then stages.

    Args:
        before: a run's folder with ``report/report.json``.
        after: another one.

    Raises:
        RecordError: a report is missing or damaged.
    """
    old, new = (load_as(CostReport, run / "report" / "report.json") for run in (before, after))
    old_rows = {(row.variant, row.profile): row for row in old.serving}
    new_rows = {(row.variant, row.profile): row for row in new.serving}
    changes = []
    for key in dict.fromkeys((*old_rows, *new_rows)):
        changes += _row(f"{key[0]} on {key[1]}", old_rows.get(key), new_rows.get(key))
    for stage in dict.fromkeys((*old.training, *new.training)):
        was, now = old.training.get(stage), new.training.get(stage)
        changes.append(
            Change(f"making: {stage}", "usd", was.cost_usd if was else None, now.cost_usd if now else None, None)
        )
    return changes


def render_comparison(before: Path, after: Path) -> str:
    """Return the comparison as Markdown: what differs between the two set-ups, then every figure."""
    old, new = (load_as(CostReport, run / "report" / "report.json") for run in (before, after))
    lines = [f"# {before.name} against {after.name}", "", f"- before: {old.headline}", f"- after: {new.headline}", ""]
    lines += [f"- {line}" for line in _differences(old, new)]
    lines += ["", "| what | figure | before | after | change | verdict |", "|---|---|--:|--:|--:|---|"]
    for change in compare_runs(before, after):
        relative = "–" if change.relative is None else f"{change.relative:+.1%}"
        cells = (words.figures3(change.before), words.figures3(change.after), relative, change.verdict)
        lines.append(f"| {change.subject} | {change.figure} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _row(subject: str, old: ServingCost | None, new: ServingCost | None) -> list[Change]:
    figures = {
        "queries/s at SLO": ("max_qps_at_slo", "qps_interval"),
        "usd per million": ("cost_usd_per_million_queries", "cost_interval"),
        "p99, s": ("latency_p99_s", "latency_p99_interval"),
        "J per query": ("energy_j_per_query", None),
        "peak memory, bytes": ("peak_rss_bytes", None),
    }
    changes = []
    for figure, (name, interval) in figures.items():
        was, now = (getattr(row, name) if row else None for row in (old, new))
        bounds = [getattr(row, interval) if row and interval else None for row in (old, new)]
        if was is not None or now is not None:
            changes.append(Change(subject, figure, was, now, _apart(*bounds)))
    was_right, is_right = (row.accuracy if row else None for row in (old, new))
    apart = _apart(was_right.interval if was_right else None, is_right.interval if is_right else None)
    values = (was_right.value if was_right else None, is_right.value if is_right else None)
    return [*changes, Change(subject, "accuracy", values[0], values[1], apart)]


def _apart(first: Interval | None, second: Interval | None) -> bool | None:
    """Return whether two intervals share no value: a stricter test than one of the difference."""
    if first is None or second is None:
        return None
    return first.high < second.low or second.high < first.low


def _differences(old: CostReport, new: CostReport) -> list[str]:
    """Return what differs between the set-ups, so that a change is not laid at the wrong door."""
    found = []
    if old.machine != new.machine:
        found.append(
            f"machine: {old.machine.cpu_model} against {new.machine.cpu_model}: the figures are not comparable"
        )
    if old.slo_s != new.slo_s:
        found.append(f"SLO: {words.milliseconds(old.slo_s)} against {words.milliseconds(new.slo_s)}")
    for package in sorted(old.versions.keys() | new.versions.keys()):
        was, now = old.versions.get(package, "none"), new.versions.get(package, "none")
        if was != now:
            found.append(f"{package}: {was} against {now}")
    if old.git_commit != new.git_commit:
        found.append(f"commit: {old.git_commit} against {new.git_commit}")
    return found or ["the same machine, versions, commit and SLO"]
