"""What the page's what-if panel starts from: the rows' figures and the levers with their ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from report.config import ReportConfig
from report.curves import Point
from testbed.records.cost import CostReport

QUERIES_A_DAY = 1e6  # where the experiment file names no traffic
SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True)
class Lever:
    """One slider.

    Attributes:
        name: of the setting in the script.
        label: in words, with the unit.
        exact: the start value, as it was configured.
        low, high: of the range; powers of ten where ``log``.
        log: the slider moves by factors.
        step: of the slider.
        unit: what a shown value is multiplied by for the model (0.001 for milliseconds).
        suffix: behind the shown value.
    """

    name: str
    label: str
    exact: float
    low: float
    high: float
    log: bool = False
    step: float = 0.01
    unit: float = 1.0
    suffix: str = ""

    @property
    def start(self) -> float:
        """Where the slider stands at first."""
        return round(math.log10(self.exact), 2) if self.log else self.exact


def levers(report: CostReport, config: ReportConfig) -> list[Lever]:
    """Return the sliders, at the experiment's own settings."""
    mean = config.traffic.mean_qps if config.traffic else QUERIES_A_DAY / SECONDS_PER_DAY
    peak = config.traffic.peak_qps / mean if config.traffic else 1.0
    floor = report.decision.accuracy_floor if report.decision else 0.0
    slo_ms = report.slo_s * 1000
    log_mean, log_slo = math.log10(mean), math.log10(slo_ms)
    return [
        Lever("mean", "Mean traffic, queries/s", mean, round(log_mean - 2, 2), round(log_mean + 3, 2), log=True),
        Lever("peak", "Peak over mean", peak, 1, max(10.0, peak), step=0.1, suffix="×"),
        Lever(
            "share", "Capacity used at the peak", config.peak_utilisation * 100, 10, 100, step=1, unit=0.01, suffix="%"
        ),
        Lever(
            "slo_s", "SLO, p99 in ms", slo_ms, round(log_slo - 1, 2), round(log_slo + 1, 2), log=True, unit=1e-3,
            suffix=" ms",
        ),
        Lever("price", "Price of serving, times the book's", 1.0, -1, 1, log=True, suffix="×"),
        Lever("floor", "Accuracy floor", floor * 100, 50, 100, step=0.1, unit=0.01, suffix="%"),
        Lever("days", "Horizon, days", config.horizon_days, 1, max(1825.0, config.horizon_days), step=1),
    ]  # fmt: skip


def whatif_data(
    report: CostReport, config: ReportConfig, curves: dict[tuple[str, str], tuple[Point, ...]]
) -> dict[str, Any]:
    """Return what the panel computes from, as JSON: rows in the order of the page, and what no lever changes."""
    return {
        "slo_s": report.slo_s,
        "baseline": config.baseline,
        "variants": list(dict.fromkeys([config.baseline, *(row.variant for row in report.serving)])),
        "budget": config.budget_usd_per_month,
        "rows": [
            {
                "variant": row.variant,
                "profile": row.profile,
                "usd_per_hour": row.price.usd_per_hour,
                "max_qps": row.max_qps_at_slo if row.valid else None,
                "points": [[point.qps, point.p99_s] for point in curves.get((row.variant, row.profile), ())],
                "accuracy": row.accuracy.value,
                "made_usd": row.one_time.total_usd if row.one_time else None,
            }
            for row in report.serving
            if row.price
        ],
    }
