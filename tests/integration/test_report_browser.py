"""The page in a real headless Chromium: no error, no network, charts drawn, readable at phone and desktop width."""

import shutil

import pytest

from report.build import build_report
from report.config import ReportConfig, Traffic
from tests.records_for_report import write_run

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
).split()
WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; help: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("run"), profiles=("cpu", "edge"))
    build_report(ReportConfig(traffic=Traffic(mean_qps=150, peak_qps=600)), run=run)
    return run / "report" / "index.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright; help: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"), executable_path=CHROMIUM, args=FLAGS, headless=True
        )
        yield context
        context.close()


@pytest.fixture
def opened(browser, page_file):
    """The page, drawn, with everything that it said and asked for."""
    page = browser.new_page()
    heard = {"errors": [], "requests": []}
    page.on("console", lambda message: heard["errors"].append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: heard["errors"].append(str(error)))
    page.on("request", lambda request: heard["requests"].append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    yield page, heard
    page.close()


def test_opens_from_disk_without_error_or_network(opened, page_file):
    _, heard = opened
    assert heard["errors"] == []
    assert heard["requests"] == [page_file.as_uri()]


def test_every_chart_is_drawn_and_described(opened):
    page, _ = opened
    charts = page.locator(".chart")
    assert charts.count() >= 4
    for index in range(charts.count()):
        chart = charts.nth(index)
        assert chart.locator("svg path").count() > 0
        assert len(chart.get_attribute("aria-label")) > 20


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(browser, page_file, width, scheme, tmp_path):
    page = browser.new_page()
    page.set_viewport_size({"width": WIDTHS[width][0], "height": WIDTHS[width][1]})
    page.emulate_media(color_scheme=scheme)
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    page.close()


def test_headline_comes_first(opened):
    page, _ = opened
    assert page.locator("h1").inner_text().startswith("Deploy student-int8 on cpu")
    assert page.locator("h1").count() == 1
