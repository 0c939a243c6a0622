"""The fleet plan over the traffic curve: offered load, and the replicas that the rule gives it."""

from __future__ import annotations

import altair as alt

from report.charts.figure import Figure, table, tip
from report.words import count, milliseconds, usd
from testbed.records.fleet import Fleet, FleetPlan


def replicas_over_time(plan: FleetPlan | None) -> Figure | None:
    """Return load and replicas over time, None without a plan."""
    if plan is None:
        return None
    values = [
        {
            "hour": slot.begin_s / 3600,
            "qps": slot.offered_qps,
            "replicas": slot.replicas,
            "p99_ms": None if slot.p99_s is None else slot.p99_s * 1000,
        }
        for slot in plan.slots
    ]
    base = alt.Chart(table(values)).encode(x=alt.X("hour:Q", axis=alt.Axis(title="hour", tickCount=8)))
    load = base.mark_area(opacity=0.35, color="#0077BB", interpolate="step-after").encode(
        y=alt.Y("qps:Q", axis=alt.Axis(title="offered load, queries/s (area)", format="~s", titleColor="#0077BB"))
    )
    tips = [
        tip("hour", number=".3r"),
        tip("qps", "queries/s", ",.4r"),
        tip("replicas", number="d"),
        tip("p99_ms", "p99, ms", ".3r"),
    ]
    num = base.mark_line(color="#EE7733", strokeWidth=2.5, interpolate="step-after").encode(
        y=alt.Y("replicas:Q", axis=alt.Axis(title="replicas (line)", format="~r", tickMinStep=1, titleColor="#EE7733")),
        tooltip=tips,
    )
    static, ruled = plan.fleets
    saved = 1 - ruled.usd_per_day / static.usd_per_day
    caption = (
        f"{count(plan.queries_per_day)} queries a day on {plan.variant} · {plan.profile}. {_sentence(static)} "
        f"{_sentence(ruled)} The rule saves {saved:.0%}: {plan.rule}. Simulated with "
        f"{count(plan.num_simulated)} queries in {plan.wall_s:.2g} s."
    )
    return Figure(
        name="fleet",
        title="How many replicas, when",
        caption=caption,
        alt_text=f"Offered load and replicas over the day. {caption}",
        chart=alt.layer(load, num).resolve_scale(y="independent"),
    )


def _sentence(fleet: Fleet) -> str:
    mean, most = f"{fleet.mean_replicas:.3g} replicas on average", f"{fleet.max_replicas} replicas"
    size = mean if fleet.name == "autoscaled" else most
    cost = f"{usd(fleet.usd_per_day)} a day, {usd(fleet.usd_per_million_queries)} per million"
    p99 = milliseconds(fleet.p99_s) if fleet.p99_s is not None else "unbounded"
    within = f"p99 {p99}, {fleet.within_slo:.2%} within the SLO"
    return f"{fleet.name.capitalize()}: {size}, {cost}, {within}, lanes {fleet.utilisation:.0%} busy."
