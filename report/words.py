"""Numbers in words: how figures look on the page, in the markdown and in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

SUFFIXES = ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"))

TELLING = ("amx_int8", "amx_bf16", "avx512_vnni", "avx512f", "avx_vnni", "avx2", "i8mm", "asimddp")


def count(value: float | None) -> str:
    """Return a number of queries with two or three figures that mean something: ``1.2 million``, ``43,000``."""
    if value is None:
        return "–"
    for size, word in SUFFIXES:
        if value >= size:
            return f"{value / size:.3g}{word}"
    if value < 1:
        return "0"
    digits = max(0, math.floor(math.log10(value)) - 2)
    return f"{round(value / 10**digits) * 10**digits:,.0f}"


def usd(value: float | None) -> str:
    """Return usd with three figures that mean something: ``$0.0123``, ``$1,230``."""
    if value is None:
        return "–"
    if value == 0:
        return "$0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"${value:,.{min(digits, 8)}f}"


def isa(flags: Sequence[str]) -> str:
    """Return the CPU flags that decide about arithmetic, the strongest first; the others are counted."""
    if not flags:
        return "no CPU flags known"
    telling = [flag for flag in TELLING if flag in flags]
    others = len(flags) - len(telling)
    return " ".join(telling or flags) + (f" and {others} more" if telling and others else "")


def points(value: float | None) -> str:
    """Return a difference of shares in percentage points, signed."""
    return "–" if value is None else f"{value * 100:+.2f}"


def milliseconds(value_s: float | None) -> str:
    """Return seconds as milliseconds."""
    return "–" if value_s is None else f"{value_s * 1000:.3g} ms" if value_s < 1 else f"{value_s * 1000:,.0f} ms"


def duration(value_s: float | None) -> str:
    """Return seconds as seconds, minutes or hours."""
    if value_s is None:
        return "–"
    if value_s < 120:  # noqa: PLR2004 — up to two minutes seconds read best
        return f"{value_s:.3g} s"
    return f"{value_s / 60:.3g} min" if value_s < 7200 else f"{value_s / 3600:,.3g} h"  # noqa: PLR2004 — two hours


def energy(value_j: float | None) -> str:
    """Return joules as J, kJ or kWh."""
    if value_j is None:
        return "–"
    if value_j >= 3.6e5:  # noqa: PLR2004 — from 0.1 kWh up
        return f"{value_j / 3.6e6:,.3g} kWh"
    return f"{value_j / 1e3:.3g} kJ" if value_j >= 1e3 else f"{value_j:.3g} J"  # noqa: PLR2004 — kilo


def bytes_(value: float | None) -> str:
    """Return bytes as MB or GB (powers of ten)."""
    if value is None:
        return "–"
    return f"{value / 1e9:,.3g} GB" if value >= 1e9 else f"{value / 1e6:,.3g} MB"  # noqa: PLR2004 — giga


def figures3(value: float | None) -> str:
    """Return a number with three figures that mean something."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004 — from a thousand up


def percent(value: float | None) -> str:
    """Return a share as per cent with one decimal."""
    return "–" if value is None else f"{value:.1%}"


def grams(value: float | None) -> str:
    """Return grams, or kilograms from a thousand up."""
    if value is None:
        return "–"
    return f"{value / 1e3:,.3g} kg" if value >= 1e3 else f"{value:.3g} g"  # noqa: PLR2004 — kilo


def flops(value: float | None) -> str:
    """Return a number of floating-point operations as powers of ten: ``1.3e15``."""
    return "–" if value is None else f"{value:.2e}".replace("e+", "e")


FILTERS = {
    "bytes": bytes_,
    "count": count,
    "duration": duration,
    "energy": energy,
    "figures3": figures3,
    "flops": flops,
    "grams": grams,
    "isa": isa,
    "milliseconds": milliseconds,
    "percent": percent,
    "points": points,
    "usd": usd,
}
