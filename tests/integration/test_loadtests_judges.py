"""Three judges on servers whose limit is known: where they agree, and what the closed loop hides."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.config import LoadTestConfig
from loadtests.judges import CLOSED, LOADGEN, OPEN, as_table, judge_server
from testbed.records import JudgeReport, load_as
from tests.known import bench_in, known_server

pytestmark = pytest.mark.integration
pytest.importorskip("mlperf_loadgen", reason="mlcommons-loadgen is not installed")


def judged(tmp_path: Path, *options: str, factors: tuple[float, ...], duration_s: float) -> JudgeReport:
    with bench_in(tmp_path, LoadTestConfig(query_timeout_s=10)) as bench, known_server(tmp_path, *options) as target:
        report = judge_server(bench, target, peak_qps=150, factors=factors, duration_s=duration_s)
        assert load_as(JudgeReport, bench.folder / "known.external.judges.json") == report
    return report


def passed(report: JudgeReport) -> dict[tuple[float, str], bool]:
    return {(row.factor, row.judge): row.passed for row in report.rows}


@pytest.mark.long
def test_loadgen_and_the_open_loop_agree_below_and_above_the_limit(tmp_path: Path) -> None:
    report = judged(tmp_path, "--service-s", "0.005", factors=(0.6, 1.5), duration_s=6)
    verdicts = passed(report)
    below = {row.judge: row for row in report.rows if row.factor == 0.6}
    assert below[OPEN].p99_s < 0.05
    assert below[LOADGEN].p99_s < 0.05
    assert not verdicts[1.5, OPEN]
    assert not verdicts[1.5, LOADGEN]
    # 225/s at a server of 200/s: the open loop's queue grows for six seconds, the closed loop holds itself back.
    assert report.omission_factors["1.5"] > 3
    assert "LoadGen (unofficial)" in as_table(report)


def test_http_errors_void_loadgens_verdict(tmp_path: Path) -> None:
    report = judged(tmp_path, "--service-s", "0.001", "--error-rate", "0.3", factors=(0.4,), duration_s=3)
    rows = {row.judge: row for row in report.rows}
    assert rows[LOADGEN].num_errors == pytest.approx(0.3 * rows[LOADGEN].num_queries, rel=0.4)
    assert not any(row.passed for row in rows.values())
    assert rows[CLOSED].num_errors > 0
