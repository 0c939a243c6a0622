"""The dashboard: what is done so far, then the report, and a stamp that changes when a stage ends."""

import threading
import urllib.request

import pytest

from report.dashboard import Dashboard, stamp, waiting_page
from testbed.errors import UserError
from tests import records_for_report as made

pytestmark = pytest.mark.integration


@pytest.fixture
def served(tmp_path):
    with Dashboard(tmp_path) as dashboard:
        thread = threading.Thread(target=dashboard.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield tmp_path, dashboard.url
        dashboard.shutdown()
        thread.join()


def fetched(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.geturl(), answer.read().decode()


def test_it_says_what_is_done_and_then_shows_the_report(served):
    run, url = served
    _, before = fetched(url)
    assert "teacher: not yet" in before
    made.write(made.training_run("teacher", 1.0), run / "teacher" / "record.json")
    assert "teacher: done" in fetched(url)[1]
    (run / "report").mkdir()
    (run / "report" / "index.html").write_text("<p>the report</p>")
    where, after = fetched(url)
    assert where.endswith("/report/index.html")
    assert after.startswith("<p>the report</p>")
    assert "location.reload()" in after


def test_the_stamp_changes_when_a_stage_ends(served):
    run, url = served
    before = fetched(url + "stamp")[1]
    assert before == stamp(run)
    made.write_run(run)
    assert fetched(url + "stamp")[1] != before


def test_the_records_can_be_opened(served):
    run, url = served
    made.write(made.training_run("teacher", 1.0), run / "teacher" / "record.json")
    assert '"kind":' in fetched(url + "teacher/record.json")[1]


def test_a_missing_run_and_a_port_in_use_are_refused(served, tmp_path):
    _, url = served
    with pytest.raises(UserError, match="no such run"):
        Dashboard(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"port .* help: name another"):
        Dashboard(tmp_path, port=int(url.rsplit(":", 1)[1].strip("/")))


def test_names_are_escaped(tmp_path):
    folder = tmp_path / "<b>"
    folder.mkdir()
    assert "<b>" not in waiting_page(folder).replace("<body", "")
