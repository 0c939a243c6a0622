"""Where a training step's time goes."""

from __future__ import annotations

import altair as alt

from report.charts.figure import Figure, table, tip
from report.evidence import Evidence
from testbed.records import StepSplit

PARTS = {
    "data_wait_s": "waiting for data",
    "copy_s": "copy to device",
    "forward_s": "forward",
    "backward_s": "backward",
    "sync_s": "gradient sync",
    "optimizer_s": "optimizer",
    "other_s": "rest of the loop",
}
SHADES = ("#CC3311", "#EE3377", "#33BBEE", "#0077BB", "#8F6FC8", "#009988", "#999999")


def step_split(evidence: Evidence) -> Figure | None:
    """Return the parts of a step, in milliseconds, one bar a training stage; None where nothing was trained here."""
    values = [
        {"stage": stage, "part": name, "ms": seconds * 1000, "share": share, "order": order}
        for stage, run in evidence.training.items()
        for order, (name, seconds, share) in enumerate(_parts(run.step_split))
    ]
    if not values:
        return None
    order = list(PARTS.values())
    chart = (
        alt.Chart(table(values))
        .mark_bar(height={"band": 0.62})
        .encode(
            x=alt.X("ms:Q", axis=alt.Axis(title="milliseconds a step")),
            y=alt.Y("stage:N", sort=list(evidence.training), axis=alt.Axis(title=None, labelFontSize=13)),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=order, range=list(SHADES)),
                legend=alt.Legend(orient="top", title=None),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                tip("stage"),
                tip("part"),
                tip("ms", number=".3r"),
                tip("share", number=".1%"),
            ],
        )
    )
    caption = " ".join(_sentence(stage, run.step_split) for stage, run in evidence.training.items())
    return Figure(
        name="step-split",
        title="Where a training step's time goes",
        caption=caption,
        alt_text=f"Stacked bars of a training step's parts. {caption}",
        chart=chart,
    )


def _parts(split: StepSplit) -> list[tuple[str, float, float]]:
    """Return (part, seconds a step, share), the parts that took time."""
    seconds = {label: float(getattr(split, name)) for name, label in PARTS.items()}
    return [(label, s / split.num_steps, s / split.wall_s) for label, s in seconds.items() if s > 0]


def _sentence(stage: str, split: StepSplit) -> str:
    ranked = sorted(_parts(split), key=lambda part: -part[2])
    shares = ", ".join(f"{label} {share:.0%}" for label, _, share in ranked[:3])
    step_ms = split.wall_s / split.num_steps * 1000
    return f"{stage.capitalize()}: {step_ms:.3g} ms a step over {split.num_steps} steps ({shares})."
