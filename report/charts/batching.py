"""What each batching policy does to latency as the load rises."""

from __future__ import annotations

from typing import Any

import altair as alt

from report.charts.figure import PALETTE, Figure, log_axis, table, tip
from report.evidence import Evidence
from testbed.records import BatchingSweep


def batching_policies(evidence: Evidence) -> Figure | None:
    """Return p99 over offered load, a line a policy, of the first sweep; None where none was made."""
    if not evidence.sweeps:
        return None
    sweep = evidence.sweeps[0]
    policies = list(dict.fromkeys(point.policy for point in sweep.points))
    values: list[dict[str, Any]] = [
        {
            "policy": point.policy,
            "qps": point.target_qps,
            "p99_ms": point.p99_s * 1000,
            "batch": point.mean_batch_texts,
            "cpu_ms": None if point.cpu_s_per_query is None else point.cpu_s_per_query * 1000,
        }
        for point in sweep.points
        if point.p99_s
    ]
    x = alt.X("qps:Q", axis=alt.Axis(title="offered load, queries/s", format="~r"))
    y_scale, y_axis = log_axis("p99 latency, ms", [value["p99_ms"] for value in values], "~r")
    y = alt.Y("p99_ms:Q", scale=y_scale, axis=y_axis)
    shade = alt.Color(
        "policy:N",
        scale=alt.Scale(domain=policies, range=list(PALETTE[: len(policies)])),
        legend=alt.Legend(title="policy", orient="top"),
    )
    tips = [
        tip("policy"),
        tip("qps", "queries/s", ".4r"),
        tip("p99_ms", "p99, ms", ".3r"),
        tip("batch", "texts a batch", ".3r"),
        tip("cpu_ms", "CPU ms a query", ".3r"),
    ]
    base = alt.Chart(table(values))
    lines = base.mark_line(strokeWidth=2).encode(x, y, shade)
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(x, y, shade, tooltip=tips)
    rule = alt.Chart(table([{"slo_ms": sweep.slo_s * 1000}])).mark_rule(color="#CC3311", strokeDash=[2, 3], size=1.5)
    caption = _sentence(sweep, policies)
    return Figure(
        name="batching",
        title=f"What batching buys ({sweep.variant} on {sweep.profile})",
        caption=caption,
        alt_text=f"p99 latency over load, a line a batching policy. {caption}",
        chart=lines + dots + rule.encode(y="slo_ms:Q"),
    )


def _sentence(sweep: BatchingSweep, policies: list[str]) -> str:
    best = {
        policy: max(
            (p.target_qps for p in sweep.points if p.policy == policy and p.meets_slo and p.valid), default=None
        )
        for policy in policies
    }
    told = ", ".join(f"{policy} {qps:.3g}" if qps else f"{policy} none of them" for policy, qps in best.items())
    times = "; ".join(
        f"{policy} {time.fixed_s * 1e3:.2g} ms + {time.per_token_s * 1e6:.3g} µs a token"
        for policy, time in sweep.batch_times.items()
    )
    fitted = f" A batch takes {times}." if times else ""
    return f"The same loads under each policy; the highest that kept the SLO, in queries/s: {told}.{fitted}"
