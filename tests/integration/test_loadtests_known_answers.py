"""Load tests of a server whose answers are known: by arithmetic on the same arrivals, and by queueing theory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from loadtests.arrivals import draw
from loadtests.config import LoadTestConfig
from loadtests.measure import Bench, Measured
from loadtests.plan import Arrivals
from loadtests.queueing import lindley_lines_s, lindley_s, md1_sojourn_s, mm1_sojourn_s, quantile_interval
from loadtests.rows import Rows, read_rows
from testbed.records import load
from tests.known import bench_in, known_server, told

pytestmark = pytest.mark.integration

PAUSED = {"send_lag", "late_by_lag"}
GRAIN_S = 0.0005  # spread of the way between client and server around its own median


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_in(tmp_path_factory.mktemp("bench"), LoadTestConfig(idle_s=0.1)) as bench:
        yield bench


def measured(bench: Bench, *options: str, rate_qps: float, duration_s: float, **more: object) -> tuple[Measured, Rows]:
    """Measure; again, as the checks advise, where they say that the generator's machine paused."""
    for _ in range(3):
        with known_server(bench.logs, *options) as target:
            plan = bench.plan(target, scenario="Server", duration_s=duration_s, rate_qps=rate_qps, **more)
            found = bench.measure(target, plan, claim="percentile")
        if not PAUSED & {check.name for check in found.checks if not check.passed}:
            break
    return found, read_rows(found.outcome.rows_file)


def value_s(found: Measured, name: str) -> float:
    assert found.figures.latency is not None
    return found.figures.latency.quantiles[name].value_s


def between_s(rows: Rows) -> float:
    """Return the median of what client and server disagree by: lag, loopback and two event loops, by two clocks."""
    median_s = float(np.median(rows.latency_s - told(rows).total_s))
    assert 0 < median_s < 0.01
    return median_s


def test_waiting_is_what_the_recursion_says_query_by_query(bench: Bench) -> None:
    _, rows = measured(bench, "--service-s", "0.01", rate_qps=70, duration_s=4)
    expected = lindley_s(draw(Arrivals(), rate_qps=70, duration_s=4, seed=bench.config.seed), 0.01)
    assert np.quantile(expected, 0.9) > 0.03  # most of the latency is waiting
    assert np.median(np.abs(rows.latency_s - expected)) < 0.005
    assert np.corrcoef(rows.latency_s, expected)[0, 1] > 0.8


@pytest.mark.long  # held to half a millisecond, which takes a machine with nothing else on it
def test_a_constant_service_time_is_found_query_by_query(bench: Bench) -> None:
    found, rows = measured(bench, "--service-s", "0.01", rate_qps=60, duration_s=6)
    arrivals = draw(Arrivals(), rate_qps=60, duration_s=6, seed=bench.config.seed)
    expected = lindley_s(arrivals, 0.01)
    assert rows.scheduled_s == pytest.approx(arrivals)
    exact_s = float(np.median(expected)) + between_s(rows)
    assert value_s(found, "p50") == pytest.approx(exact_s, rel=0.02, abs=GRAIN_S)
    assert np.median(rows.latency_s - expected) == pytest.approx(between_s(rows), abs=GRAIN_S)
    assert found.figures.latency is not None
    interval = found.figures.latency.quantiles["p95"].interval
    assert interval is not None
    assert interval.low <= np.quantile(expected, 0.95) + between_s(rows) <= interval.high
    assert {check.name for check in found.checks if not check.passed} <= {"enough_queries"}


@pytest.mark.parametrize("service", ["constant", "exponential"])
def test_many_lines_at_once_are_what_the_recursion_says(bench: Bench, service: str) -> None:
    options = ("--service", service, "--service-s", "0.04", "--lines", "20")
    found, rows = measured(bench, *options, rate_qps=250, duration_s=3)
    known = told(rows)
    assert np.unique(known.line).tolist() == list(range(20))
    exact_s = lindley_lines_s(rows.scheduled_s, known.service_s, known.line)
    assert np.median(np.abs(rows.latency_s - exact_s)) < 0.005
    assert value_s(found, "p50") == pytest.approx(float(np.median(exact_s)), rel=0.1)


@pytest.mark.long
@pytest.mark.parametrize("service", ["constant", "exponential"])
def test_quantiles_are_those_of_queueing_theory(bench: Bench, service: str) -> None:
    options = ("--service", service, "--service-s", "0.05", "--lines", "40")
    found, rows = measured(bench, *options, rate_qps=480, duration_s=25)
    known = told(rows)
    recursion_s = lindley_lines_s(rows.scheduled_s, known.service_s, known.line)
    theory = {"constant": md1_sojourn_s, "exponential": mm1_sojourn_s}[service]
    for name, share in {"p50": 0.5, "p90": 0.9, "p99": 0.99}.items():
        exact_s = float(np.quantile(recursion_s, share, method="inverted_cdf"))
        assert value_s(found, name) == pytest.approx(exact_s, rel=0.02)
        low_s, high_s = quantile_interval(rows.latency_s, known.line, share)
        # The interval covers 95 %: six of them, widened by half, all hold but once in some thousand runs.
        half_s = 0.75 * (high_s - low_s)
        assert abs(value_s(found, name) - theory(share, rate_qps=480 / 40, service_s=0.05)) < half_s


def test_a_stall_shows_in_the_tail_as_the_arithmetic_says(bench: Bench) -> None:
    options = ("--service-s", "0.002", "--stall-at", "200", "--stall-s", "0.5")
    found, rows = measured(bench, *options, rate_qps=100, duration_s=6)
    services = np.full(len(rows), 0.002)
    services[199] += 0.5
    expected = lindley_s(rows.scheduled_s, services)
    late = int((expected > bench.config.slo_s).sum())
    assert late > 40
    assert abs(found.figures.num_late - late) <= 2
    assert value_s(found, "p99") == pytest.approx(np.quantile(expected, 0.99), abs=0.02)
    assert not found.figures.meets_slo


def test_a_closed_loop_hides_the_same_stall(bench: Bench) -> None:
    with known_server(bench.logs, "--service-s", "0.002", "--stall-at", "200", "--stall-s", "0.5") as target:
        plan = bench.plan(target, scenario="SingleStream", duration_s=2)
        found = bench.measure(target, plan, claim="percentile")
    assert found.figures.num_late == 1
    assert value_s(found, "p99") < 0.01


def test_errors_are_misses_and_not_fast_answers(bench: Bench) -> None:
    found, _ = measured(bench, "--service-s", "0.002", "--error-rate", "0.2", rate_qps=100, duration_s=5)
    assert found.figures.errors == {"http_503:queue_full": pytest.approx(100, abs=35)}
    assert found.figures.num_late == found.figures.errors["http_503:queue_full"]
    assert found.figures.goodput_qps < 90
    assert not found.figures.meets_slo


def test_a_server_that_lies_is_found_out(bench: Bench) -> None:
    slow = ("--service-s", "0.02")
    honest, _ = measured(bench, *slow, rate_qps=20, duration_s=1.5)
    too_quick, _ = measured(bench, *slow, "--timing-factor", "0.1", rate_qps=20, duration_s=1.5)
    too_slow, _ = measured(bench, *slow, "--timing-factor", "3", rate_qps=20, duration_s=1.5)
    forgetful, _ = measured(bench, *slow, "--forgets", rate_qps=20, duration_s=1.5)
    failed = [
        {check.name for check in found.checks if not check.passed} - {"enough_queries"}
        for found in (honest, too_quick, too_slow, forgetful)
    ]
    assert failed == [set(), {"server_time"}, {"server_time"}, {"server_counted"}]


def test_a_queue_that_grows_with_the_run_is_no_steady_state(bench: Bench) -> None:
    found, _ = measured(bench, "--service-s", "0.02", rate_qps=75, duration_s=3, timeout_s=5)
    assert {check.name for check in found.checks if not check.passed} >= {"little_law"}


def test_a_run_that_cannot_pass_any_more_ends_early(bench: Bench) -> None:
    found, rows = measured(bench, "--service-s", "0.02", rate_qps=100, duration_s=20, stop_after_late=5)
    assert found.outcome.stopped_early
    assert len(rows) < 200
    assert not found.figures.meets_slo


def test_a_run_is_saved_with_its_rows_and_can_be_replayed_exactly(bench: Bench) -> None:
    with known_server(bench.logs, "--service-s", "0.002") as target:
        record = bench.run(bench.idle(target), scenario="Server", duration_s=2, purpose="first", rate_qps=50)
        rows_file = bench.folder / record.rows_file
        replay = Arrivals(process="trace", file=rows_file)
        again = bench.run(target, scenario="Server", duration_s=2, purpose="replay", arrivals=replay)
    assert load(rows_file.with_suffix(".json")) == record
    assert record.server is not None
    assert record.server.idle is not None
    assert record.server.loaded.cpu_s > record.server.idle.cpu_s
    assert record.server.counted_requests == 100 + 8  # the warm-up's too
    assert again.target_qps is None
    first, second = read_rows(rows_file), read_rows(bench.folder / again.rows_file)
    assert second.scheduled_s == pytest.approx(first.scheduled_s - first.scheduled_s[0])
