"""The memory ledger of training: what was predicted, by use, against the peak that was measured."""

from __future__ import annotations

import altair as alt

from report.charts.figure import BAR_HEIGHT, Figure, table, tip
from report.evidence import Evidence
from report.words import bytes_
from testbed.records import MemoryLedger

USES = {
    "parameters_bytes": "weights",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer states",
    "activations_bytes": "activations",
}
REST = "process and libraries"
SHADES = ("#0077BB", "#33BBEE", "#8F6FC8", "#EE7733", "#999999")


def memory_ledger(evidence: Evidence) -> Figure | None:
    """Return a bar a training stage with a mark at its measured peak; None where there is no ledger."""
    ledgers = {stage: run.memory for stage, run in evidence.training.items() if run.memory}
    if not ledgers:
        return None
    values = [
        {"stage": stage, "use": use, "gb": size / 1e9, "order": order}
        for stage, ledger in ledgers.items()
        for order, (use, size) in enumerate(_uses(ledger).items())
    ]
    peaks = [
        {"stage": stage, "gb": ledger.measured_peak_bytes / 1e9, "what": "measured peak"}
        for stage, ledger in ledgers.items()
        if ledger.measured_peak_bytes
    ]
    y = alt.Y("stage:N", sort=list(ledgers), axis=alt.Axis(title=None, labelFontSize=13))
    bars = (
        alt.Chart(table(values))
        .mark_bar(height={"band": 0.55})
        .encode(
            x=alt.X("gb:Q", axis=alt.Axis(title="GB")),
            y=y,
            color=alt.Color(
                "use:N",
                scale=alt.Scale(domain=[*USES.values(), REST], range=list(SHADES)),
                legend=alt.Legend(orient="top", title=None),
            ),
            order=alt.Order("order:Q"),
            tooltip=[tip("stage"), tip("use"), tip("gb", "GB", ".3r")],
        )
    )
    ticks = alt.Chart(table(peaks)).mark_tick(color="#CC3311", thickness=3, size=44)
    told = " ".join(_sentence(stage, ledger) for stage, ledger in ledgers.items())
    return Figure(
        name="memory-ledger",
        title="What training keeps in memory",
        caption=f"Predicted before the run, by use; the red mark is the measured peak. {told}",
        alt_text=f"Stacked bars of training memory. {told}",
        chart=bars + ticks.encode(x="gb:Q", y=y, tooltip=[tip("stage"), tip("what"), tip("gb", "GB", ".3r")]),
        height=BAR_HEIGHT * len(ledgers),
    )


def _uses(ledger: MemoryLedger) -> dict[str, int]:
    uses = {word: int(getattr(ledger, name)) for name, word in USES.items()}
    return {**uses, REST: max(0, ledger.predicted_bytes - sum(uses.values()))}


def _sentence(stage: str, ledger: MemoryLedger) -> str:
    if not ledger.measured_peak_bytes:
        return f"{stage.capitalize()}: {bytes_(ledger.predicted_bytes)} predicted."
    off = ledger.predicted_bytes / ledger.measured_peak_bytes - 1
    measured = bytes_(ledger.measured_peak_bytes)
    return f"{stage.capitalize()}: {bytes_(ledger.predicted_bytes)} predicted, {measured} measured ({off:+.0%})."
