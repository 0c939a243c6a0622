"""A chart with what a reader needs beside it, and what all charts share: size, palette, rendering."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import altair as alt
import vl_convert

from testbed.records import write_atomically

# Paul Tol's "vibrant" scheme: told apart by colour-blind readers, at least 2.8:1 on white and on the dark background.
PALETTE: Final = ("#EE7733", "#0077BB", "#009988", "#CC3311", "#EE3377", "#33BBEE", "#8F6FC8", "#888888")
MARGIN = 1.25  # of a logarithmic scale beyond what is drawn
WIDE_DECADES = 2.5
STATIC_WIDTH = 720
BAR_HEIGHT = 60  # of one bar of a bar chart, its gap counted
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


@dataclass(frozen=True)
class Figure:
    """One chart.

    Attributes:
        name: file name without its ending, and the anchor on the page.
        title: what is shown.
        caption: what to see in it, in a sentence or two, with the figures.
        alt_text: the chart in words, for who cannot see it.
        chart: the Altair chart; its width is the page's.
        height: of the plot, in pixels.
    """

    name: str
    title: str
    caption: str
    alt_text: str
    chart: alt.LayerChart | alt.Chart
    height: int = 320

    def spec(self) -> dict[str, Any]:
        """Return the Vega-Lite specification that the page draws, as wide as its place."""
        sized = self.chart.properties(width="container", height=self.height, description=self.alt_text)
        return dict(sized.configure(autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).to_dict())

    def save(self, folder: Path) -> None:
        """Write ``<name>.svg`` and ``<name>.png`` for documents that cannot run the page."""
        sized = self.chart.properties(width=STATIC_WIDTH, height=self.height, title=self.title, background="white")
        spec = sized.configure_axis(tickCount=7).configure_legend(columns=4).to_dict()
        svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
        png = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=2)
        write_atomically(folder / f"{self.name}.svg", lambda path: path.write_text(svg, encoding="utf-8"))
        write_atomically(folder / f"{self.name}.png", lambda path: path.write_bytes(png))


def table(values: Sequence[Mapping[str, object]]) -> alt.InlineData:
    """Return rows as a chart's inline data."""
    return alt.InlineData(values=[dict(row) for row in values])


def colour(names: Sequence[str], *, title: str | None = "variant") -> alt.Color:
    """Return the colour encoding of the field ``variant``, the same for the same names on every chart."""
    shades = [PALETTE[index % len(PALETTE)] for index in range(len(names))]
    legend = alt.Legend(title=title, orient="top", symbolType="circle")
    return alt.Color("variant:N", scale=alt.Scale(domain=list(names), range=shades), legend=legend)


def log_axis(title: str, values: Iterable[float | None], number: str) -> tuple[alt.Scale, alt.Axis]:
    """Return a logarithmic scale round the values and an axis with few ticks: powers of ten, or 1-2-5 steps.

    Args:
        title: of the axis, with the unit.
        values: what is drawn; None and what is not positive are left out.
        number: d3 format of the labels.
    """
    drawn = [value for value in values if value is not None and value > 0]
    low, high = min(drawn, default=1.0) / MARGIN, max(drawn, default=10.0) * MARGIN
    steps = (1,) if math.log10(high / low) > WIDE_DECADES else (1, 2, 5)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    ticks = [tick for tick in ticks if low <= tick <= high]
    return alt.Scale(type="log", domain=[low, high], nice=False), alt.Axis(title=title, values=ticks, format=number)


def tip(field: str, title: str | None = None, number: str | None = None) -> alt.Tooltip:
    """Return a tooltip line: a name, or a number in a d3 format."""
    if number is None:
        return alt.Tooltip(f"{field}:N", title=title or field)
    return alt.Tooltip(f"{field}:Q", title=title or field, format=number)
