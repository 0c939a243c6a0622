"""LoadGen's summary, as version 6.0.17 wrote it for a server of 200/s that was asked 117/s and 225/s."""

from __future__ import annotations

import pytest

from loadtests.loadgen_order import read_summary

PASSED = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 116.94
Result is : VALID
  Performance constraints satisfied : Yes
  Min duration satisfied : Yes
  Min queries satisfied : Yes
  Early stopping satisfied: Yes
Early Stopping Result:
 * Run successful.

================================================
Additional Stats
================================================
Scheduled samples per second : 117.09
Min latency (ns)                : 4485490
Mean latency (ns)               : 7177192
50.00 percentile latency (ns)   : 5775072
99.00 percentile latency (ns)   : 18681997
99.90 percentile latency (ns)   : 23180063
"""
UNSUCCESSFUL = " * Run unsuccessful.\n * Processed 1353 queries.\n * Would need to run at least 137552 more queries,"
FAILED = PASSED.replace(": VALID", ": INVALID").replace(" * Run successful.", UNSUCCESSFUL)


def test_rates_and_percentiles_are_read_in_seconds() -> None:
    found = read_summary(PASSED, [0.005, 0.006, 0.02], {})
    assert found.valid
    assert (found.scheduled_qps, found.completed_qps, found.num_queries) == (117.09, 116.94, 3)
    assert found.quantiles_s == {
        "p50": pytest.approx(0.005775072),
        "p99": pytest.approx(0.018681997),
        "p99.9": pytest.approx(0.023180063),
    }
    assert found.seen.max_s == 0.02


def test_an_invalid_run_keeps_loadgens_reasons() -> None:
    found = read_summary(FAILED, [0.005], {"http_503": 7})
    assert not found.valid
    assert found.reasons[0] == "Run unsuccessful."
    assert len(found.reasons) == 3
    assert found.errors == {"http_503": 7}
