"""Where a training stage's time goes: by phase of the stage, and by part of a step."""

from __future__ import annotations

import altair as alt

from report.charts.figure import BAR_HEIGHT, Figure, table, tip
from report.evidence import Evidence
from report.words import duration
from testbed.records import StepSplit, TrainingRun

PARTS = {
    "data_wait_s": "waiting for data",
    "copy_s": "copy to device",
    "forward_s": "forward",
    "backward_s": "backward",
    "sync_s": "gradient sync",
    "optimizer_s": "optimizer",
    "other_s": "rest of the loop",
}
PART_SHADES = ("#CC3311", "#EE3377", "#33BBEE", "#0077BB", "#8F6FC8", "#009988", "#999999")
PHASE_SHADES = ("#8F6FC8", "#33BBEE", "#009988", "#0077BB", "#EE7733", "#EE3377", "#999999", "#CC3311", "#666666")
REST = "rest"


def step_split(evidence: Evidence) -> Figure | None:
    """Return the parts of a step, in milliseconds, one bar a training stage; None where nothing was trained here."""
    parts = {stage: _step_parts(run.step_split) for stage, run in evidence.training.items()}
    if not parts:
        return None
    caption = " ".join(_step_sentence(stage, run.step_split) for stage, run in evidence.training.items())
    return Figure(
        name="step-split",
        title="Where a training step's time goes",
        caption=caption,
        alt_text=f"Stacked bars of a training step's parts. {caption}",
        chart=_stacked(parts, list(PARTS.values()), PART_SHADES, title="milliseconds a step", scale=1000),
        height=BAR_HEIGHT * len(parts),
    )


def phase_split(evidence: Evidence) -> Figure | None:
    """Return the phases of each training stage, in seconds: what is paid for besides the steps."""
    parts = {stage: _phases(run) for stage, run in evidence.training.items()}
    if not parts:
        return None
    names = list(dict.fromkeys(name for each in parts.values() for name in each))
    caption = " ".join(_phase_sentence(stage, run) for stage, run in evidence.training.items())
    return Figure(
        name="phase-split",
        title="From raw rows to a saved checkpoint",
        caption=caption,
        alt_text=f"Stacked bars of the phases of training. {caption}",
        chart=_stacked(parts, names, PHASE_SHADES, title="seconds", scale=1),
        height=BAR_HEIGHT * len(parts),
    )


def _stacked(
    parts: dict[str, dict[str, float]], names: list[str], shades: tuple[str, ...], *, title: str, scale: float
) -> alt.Chart:
    values = [
        {
            "stage": stage,
            "part": name,
            "value": seconds * scale,
            "share": seconds / sum(of_stage.values()),
            "order": order,
        }
        for stage, of_stage in parts.items()
        for order, (name, seconds) in enumerate(of_stage.items())
        if seconds > 0
    ]
    chart: alt.Chart = (
        alt.Chart(table(values))
        .mark_bar(height={"band": 0.62})
        .encode(
            x=alt.X("value:Q", axis=alt.Axis(title=title)),
            y=alt.Y("stage:N", sort=list(parts), axis=alt.Axis(title=None, labelFontSize=13)),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=names, range=list(shades[: len(names)])),
                legend=alt.Legend(orient="top", title=None),
            ),
            order=alt.Order("order:Q"),
            tooltip=[tip("stage"), tip("part"), tip("value", title, ".3r"), tip("share", number=".1%")],
        )
    )
    return chart


def _step_parts(split: StepSplit) -> dict[str, float]:
    """Return part to seconds a step."""
    return {label: float(getattr(split, name)) / split.num_steps for name, label in PARTS.items()}


def _phases(run: TrainingRun) -> dict[str, float]:
    """Return phase to seconds; what no phase accounts for is the rest."""
    phases = {name: usage.wall_s for name, usage in run.phases.items()}
    return {**phases, REST: max(0.0, run.usage.wall_s - sum(phases.values()))}


def _step_sentence(stage: str, split: StepSplit) -> str:
    step_s = split.wall_s / split.num_steps
    ranked = sorted(_step_parts(split).items(), key=lambda part: -part[1])
    shares = ", ".join(f"{label} {seconds / step_s:.0%}" for label, seconds in ranked[:3])
    return f"{stage.capitalize()}: {step_s * 1000:.3g} ms a step over {split.num_steps} steps ({shares})."


def _phase_sentence(stage: str, run: TrainingRun) -> str:
    steps = run.phases["train"].wall_s / run.usage.wall_s if "train" in run.phases else None
    share = "" if steps is None else f", {steps:.0%} of it in training steps"
    padding = run.num_padded_tokens / run.num_tokens - 1
    return (
        f"{stage.capitalize()}: {duration(run.usage.wall_s)} in all{share}; {run.samples_per_s:.3g} texts/s, "
        f"{padding:.0%} more tokens computed than there are, for padding."
    )
