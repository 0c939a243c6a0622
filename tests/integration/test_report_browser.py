"""The page in a real headless Chromium: no error, no network, charts drawn, readable at phone and desktop width."""

import itertools
import shutil
from pathlib import Path

import pytest

from report import model
from report.build import assess, build_report
from report.config import ReportConfig, Traffic
from report.curves import measured_curves
from report.decision import best_offer, offer
from report.evidence import gather
from report.sensitivity import at_slo
from report.serving import at_traffic
from tests.records_for_report import write_run
from tests.series_for_report import write_series

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
).split()
TRAFFIC = Traffic(mean_qps=150, peak_qps=600)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"  # kept for whoever wants to look; not in git
WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine; help: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("run"), profiles=("cpu", "edge"))
    write_series(run / "loads", "student-int8", "cpu")
    build_report(ReportConfig(traffic=TRAFFIC), run=run)
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
def test_nothing_is_wider_than_the_screen(browser, page_file, width, scheme):
    page = browser.new_page()
    page.set_viewport_size({"width": WIDTHS[width][0], "height": WIDTHS[width][1]})
    page.emulate_media(color_scheme=scheme)
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width][0]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    page.screenshot(path=SCREENSHOTS / f"{width}-{scheme}.png", full_page=True)
    page.close()


def test_headline_comes_first(opened):
    page, _ = opened
    assert page.locator("h1").inner_text().startswith("Deploy student-int8 on cpu")
    assert page.locator("h1").count() == 1


LEVERS = [
    {},
    {"mean": 2.3, "peak": 4},
    {"mean": 0.5, "price": 0.7},
    {"slo_s": 1.2, "share": 60},
    {"slo_s": 2.4},
    {"floor": 94.0, "days": 30},
    {"floor": 99.0},
]


@pytest.mark.parametrize("moved", LEVERS, ids=lambda moved: " ".join(moved) or "as configured")
def test_what_if_panel_gives_what_the_cost_model_gives(opened, page_file, moved):
    page, heard = opened
    for name, value in moved.items():
        page.locator(f"#whatif input[name={name}]").evaluate(
            "(lever, value) => { lever.value = value; lever.dispatchEvent(new Event('input')); }", str(value)
        )
    expected, chosen = by_the_cost_model(page_file.parent.parent, moved)
    for (variant, profile), figures in expected.items():
        line = page.locator(f"tr[data-row='{variant} {profile}']")
        for name, value in figures.items():
            shown = line.locator(f"td[data-name={name}]").get_attribute("data-value")
            assert (shown is None) == (value is None), (variant, profile, name)
            if value is not None:
                assert float(shown) == pytest.approx(value, rel=1e-9), (variant, profile, name)
    assert page.locator("#whatif-said").get_attribute("data-chosen") == chosen
    assert heard["errors"] == []


def by_the_cost_model(run, moved):
    """Return the panel's figures and choice as Python computes them, for levers moved to slider positions."""
    evidence = gather(run)
    start = ReportConfig(traffic=TRAFFIC)
    report = assess(start, evidence)
    mean = 10 ** moved["mean"] if "mean" in moved else TRAFFIC.mean_qps
    slo_s = 10 ** moved["slo_s"] / 1000 if "slo_s" in moved else report.slo_s
    floor = moved.get("floor", report.decision.accuracy_floor * 100) / 100
    price = 10 ** moved.get("price", 0)
    config = start.model_copy(
        update={
            "traffic": Traffic(mean_qps=mean, peak_qps=mean * moved.get("peak", TRAFFIC.peak_qps / TRAFFIC.mean_qps)),
            "peak_utilisation": moved.get("share", 100) / 100,
            "horizon_days": moved.get("days", start.horizon_days),
        }
    )
    rows = tuple(
        row.model_copy(update={"price": row.price.model_copy(update={"usd_per_hour": row.price.usd_per_hour * price})})
        for row in at_slo(report.serving, measured_curves(evidence), slo_s, report.slo_s)
    )
    best = best_offer(rows, floor, config)
    figures = {(row.variant, row.profile): expected_row(row, rows, config) for row in rows}
    return figures, f"{best.row.variant} {best.row.profile}" if best else ""


def expected_row(row, rows, config):
    names = ("qps", "replicas", "utilisation", "monthly", "at_traffic", "even", "back", "total")
    if not row.valid:
        return dict.fromkeys(names)
    at, whole = at_traffic(row, config), offer(row, config)
    per_query = model.rent_per_query(row.price.usd_per_hour, row.max_qps_at_slo)
    base = next(other for other in rows if (other.variant, other.profile) == ("teacher-fp32", row.profile))
    back = None
    if row.variant != "teacher-fp32" and base.valid:
        extra = row.one_time.total_usd - base.one_time.total_usd
        back = model.payback(extra, per_query, model.rent_per_query(base.price.usd_per_hour, base.max_qps_at_slo))
    figures = (
        row.max_qps_at_slo, at.replicas, at.utilisation, at.usd_per_month, at.usd_per_million_queries,
        model.break_even(row.one_time.total_usd, per_query), back, whole.usd,
    )  # fmt: skip
    return dict(zip(names, figures, strict=True))


def test_reset_brings_the_experiment_back(opened):
    page, _ = opened
    before = page.locator("#whatif-said").inner_text()
    page.locator("#whatif input[name=mean]").evaluate(
        "lever => { lever.value = 4; lever.dispatchEvent(new Event('input')); }"
    )
    assert page.locator("#whatif-said").inner_text() != before
    page.locator("#whatif-reset").click()
    assert page.locator("#whatif-said").inner_text() == before


def test_payback_is_against_whom_the_reader_picks(opened, page_file):
    page, _ = opened
    page.get_by_label("Payback against").select_option("student-fp32")
    report = assess(ReportConfig(traffic=TRAFFIC), gather(page_file.parent.parent))
    for crossing in report.payback_between:
        if crossing.against == "student-fp32":
            cell = page.locator(f"tr[data-row='{crossing.variant} {crossing.profile}'] td[data-name=back]")
            shown = cell.get_attribute("data-value")
            assert (shown is None) == (crossing.queries is None)
            assert shown is None or float(shown) == pytest.approx(crossing.queries, rel=1e-9)
    page.locator("#whatif-reset").click()
    assert page.get_by_label("Payback against").input_value() == "teacher-fp32"


def test_levers_work_from_the_keyboard_and_have_labels(opened):
    page, _ = opened
    lever = page.get_by_label("Mean traffic")
    before = page.locator("#whatif-said").inner_text()
    page.bring_to_front()
    for _ in range(60):
        lever.press("ArrowRight")
    assert page.locator("#whatif-said").inner_text() != before
    labels = page.locator("input").evaluate_all("all => all.map(each => [...each.labels].map(l => l.control === each))")
    assert labels
    assert all(label == [True] for label in labels)


def test_headings_skip_no_level(opened):
    page, _ = opened
    levels = page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(each => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_print_is_light_and_fits_the_paper(browser, page_file):
    page = browser.new_page()
    page.set_viewport_size({"width": 794, "height": 1123})  # A4 at 96 dpi
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#whatif").is_visible()
    page.screenshot(path=SCREENSHOTS / "print.png", full_page=True)
    page.close()
