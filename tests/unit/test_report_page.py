"""The page's colours can be read, in light and dark, and its text is escaped."""

import re
from pathlib import Path

import pytest

from report.build import assess, draw
from report.config import ReportConfig
from report.curves import measured_curves
from report.evidence import gather
from report.page import render
from tests import records_for_report as made

CSS = (Path(render.__file__).parent / "page.css").read_text()
AA = 4.5  # WCAG 2.2, 1.4.3: contrast of text


def schemes():
    """Return the colours of the light and of the dark scheme, by variable name."""
    light, dark = re.findall(r":root \{(.*?)\}", CSS, flags=re.DOTALL)[:2]
    first = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))
    return {"light": first, "dark": {**first, **dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", dark))}}


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "soft", "accent", "good", "warn", "bad"])
@pytest.mark.parametrize("ground", ["paper", "raised"])
def test_text_stands_out(scheme, text, ground):
    colours = schemes()[scheme]
    assert contrast(colours[text], colours[ground]) >= AA


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_marked_row_stands_out(scheme):
    colours = schemes()[scheme]
    assert contrast(colours["ink"], colours["mark"]) >= AA
    assert contrast(colours["soft"], colours["mark"]) >= AA


def test_what_records_say_is_escaped(tmp_path):
    run = made.write_run(tmp_path)
    hostile = "</script><script>alert(1)</script>"
    made.write(made.manifest().model_copy(update={"name": hostile}), run / "bundle" / "manifest.json")
    evidence = gather(run)
    report = assess(ReportConfig(), evidence)
    page = render.render_page(
        report,
        draw(report, evidence),
        config=ReportConfig(),
        curves=measured_curves(evidence),
        records=[hostile],
        manifest=evidence.manifest,
    )
    assert "alert(1)" in page
    assert hostile not in page
