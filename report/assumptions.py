"""What the verdict takes for granted, in sentences that stand on the page."""

from __future__ import annotations

from collections import defaultdict

from report.config import ReportConfig
from report.evidence import Evidence
from testbed.records.cost import Price, ServingCost


def assumptions(rows: tuple[ServingCost, ...], config: ReportConfig, evidence: Evidence) -> tuple[str, ...]:
    """Return each assumption once, prices first."""
    lines = [_price(price, profiles) for price, profiles in _prices(rows).items()]
    if config.trials_share:
        lines.append(
            f"Finding the settings is taken to have cost {config.trials_share:.0%} of the final training runs."
        )
    elif not config.trials:
        lines.append("No earlier trainings are named: the search for the settings of training counts as free.")
    if any(row.energy_method == "estimate" for row in rows):
        lines.append("No energy counter was there: energy is estimated from the price book's watts.")
    if config.traffic:
        lines.append("Replicas are whole and always on: idle time is paid for.")
    else:
        lines.append("No traffic is given: a million queries a day are taken, and only busy time is paid for.")
    missing = [stage for stage in ("teacher", "student") if stage not in evidence.training]
    if missing:
        lines.append(f"The training of {' and '.join(missing)} has no record, so what rests on it is left open.")
    return tuple(lines)


def _prices(rows: tuple[ServingCost, ...]) -> dict[Price, list[str]]:
    found: dict[Price, list[str]] = defaultdict(list)
    for row in rows:
        if row.price and row.profile not in found[row.price]:
            found[row.price].append(row.profile)
    return found


def _price(price: Price, profiles: list[str]) -> str:
    lead = "Projection: " if price.basis == "projection" else ""
    return (
        f"{lead}{' and '.join(profiles)}: {price.note}. A query pays for {price.share:.3g} of one {price.name}, the "
        f"cores that its server was given: {price.usd_per_hour:.4g} usd an hour ({price.source}, {price.date})."
    )
