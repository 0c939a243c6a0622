"""What a server does with more than it can take: goodput, what it sheds, whom it serves, how soon it recovers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loadtests.checks import OWN_RULES
from loadtests.measure import Bench
from loadtests.plan import Arrivals
from loadtests.rows import Rows, read_rows
from loadtests.server import Target
from loadtests.texts import read_texts
from testbed.latency import num_within, summarise
from testbed.progress import say
from testbed.records import OverloadPoint, OverloadReport, save

RECOVERY_FACTOR = 0.5  # of the peak, offered after the overload for as long as the overload lasted


def measure_overload(
    bench: Bench, target: Target, *, peak_qps: float, factors: Sequence[float], duration_s: float
) -> OverloadReport:
    """Offer multiples of the peak, each followed by a quiet spell, and save and return what came of it.

    Args:
        bench: a bench with a started generator.
        target: the server.
        peak_qps: the load that ``factors`` multiply.
        factors: such as 0.5, 1, 2, 3.
        duration_s: of each overload, and of the quiet spell after it.
    """
    points = []
    for factor in factors:
        points.append(_point(bench, target, factor, peak_qps, duration_s))
        say(f"overload: {factor:g}× gives {points[-1].goodput_qps:.0f} right answers/s within the SLO")
    report = OverloadReport(
        **bench.provenance(),
        variant=target.variant,
        profile=target.profile,
        slo_s=bench.config.slo_s,
        peak_qps=peak_qps,
        points=tuple(points),
    )
    save(report, bench.folder / f"{target.variant}.{target.profile}.overload.json")
    return report


def _point(bench: Bench, target: Target, factor: float, peak_qps: float, duration_s: float) -> OverloadPoint:
    plan = bench.plan(
        target,
        scenario="Server",
        duration_s=2 * duration_s,
        rate_qps=peak_qps,
        arrivals=Arrivals(process="steps", steps=(factor, RECOVERY_FACTOR)),
    )
    measured = bench.measure(target, plan, claim="nothing")
    record = bench.save(target, measured, purpose="overload")
    rows = read_rows(bench.folder / record.rows_file)
    during = rows.scheduled_s < duration_s
    served = summarise(rows.latency_s[during & rows.ok])
    sizes = np.asarray([len(text) for text in read_texts(bench.texts_file)])[rows.text]
    short, long = shares_by_size(rows, during, sizes, bench.config.slo_s)
    broken = (OWN_RULES | {"generator_ceiling"}) & set(measured.failed)
    return OverloadPoint(
        factor=factor,
        offered_qps=float(during.sum()) / duration_s,
        goodput_qps=num_within(rows.latency_s[during], bench.config.slo_s) / duration_s,
        served_p99_s=None if served is None else served.quantiles["p99"].value_s,
        error_rate=1 - float(rows.ok[during].mean()),
        shed=dict(Counter(rows.errors[i] or "" for i in np.flatnonzero(during & ~rows.ok))),
        short_within_slo=short,
        long_within_slo=long,
        recovery_s=recovery_s(rows, duration_s, bench.config.slo_s),
        valid=not broken,
        broken_rules=tuple(sorted(broken)),
        run=record.rows_file.replace(".parquet", ".json"),
        rows_sha256=record.rows_sha256,
    )


def shares_by_size(
    rows: Rows, during: NDArray[np.bool_], sizes: NDArray[np.int64], slo_s: float
) -> tuple[float | None, float | None]:
    """Return the share within the SLO of the shortest and of the longest quarter of the texts; None for no texts.

    Args:
        rows: the run.
        during: [queries], those that count.
        sizes: [queries], length of each query's text.
        slo_s: the objective.
    """
    if not during.any():
        return None, None
    low, high = np.quantile(sizes[during], [0.25, 0.75])
    in_time = rows.latency_s <= slo_s
    short, long = in_time[during & (sizes <= low)], in_time[during & (sizes >= high)]
    return float(short.mean()), float(long.mean())


def recovery_s(rows: Rows, fell_s: float, slo_s: float) -> float | None:
    """Return the seconds after the load fell until the last query that was late or failed; None without an end."""
    after = rows.scheduled_s >= fell_s
    bad = rows.scheduled_s[after & (rows.latency_s > slo_s)]
    if not len(bad):
        return 0.0
    # A run that ends in late queries has not recovered.
    is_last = bad[-1] >= rows.scheduled_s[after][-10:][0]
    return None if is_last else float(bad[-1] - fell_s)
