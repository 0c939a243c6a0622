"""The built wheel, unpacked somewhere else: its price book is there, and its report works from it."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests import records_for_report as made

ROOT = Path(__file__).parents[2]
REPORT = """
import sys
from pathlib import Path
from report import prices
from report.build import build_report
from report.config import ReportConfig
run = Path(sys.argv[1])
assert prices.SHIPPED.is_relative_to(sys.argv[2]), prices.SHIPPED
print(build_report(ReportConfig(), run=run).headline)
"""


def test_the_report_works_from_the_wheel_alone(tmp_path):
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as unpacked:
        unpacked.extractall(site)
    run = made.write_run(tmp_path / "run")
    # Isolated, and from another folder: the checkout must not be found; its libraries come from this environment.
    start = f"import sys; sys.path[:] = [{str(site)!r}, *(p for p in sys.path if p != {str(ROOT)!r})]\n"
    command = [sys.executable, "-P", "-c", start + REPORT, run, site]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "student-int8" in done.stdout
    assert (run / "report" / "index.html").stat().st_size > 100_000
