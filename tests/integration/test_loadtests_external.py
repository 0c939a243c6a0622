"""Any URL: capacity by arithmetic, verdicts as exit codes, the locustfile by itself, and what cannot run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from loadtests.arrivals import draw
from loadtests.checks import OWN_RULES
from loadtests.config import LoadTestConfig
from loadtests.external import Finding, Verdict, load_test, verdict
from loadtests.generator import LOCUSTFILE, GeneratorProcess
from loadtests.plan import Arrivals, Plan
from loadtests.queueing import md1_sojourn_s
from loadtests.rows import read_rows
from loadtests.server import ServerProcess, Target, free_port
from testbed.errors import UserError
from testbed.records import Capacity, LoadTestRun, load_as
from tests.known import ahead_of_other_work, known_server

pytestmark = pytest.mark.integration

KILLED_RUNNER = """
import sys, time
from pathlib import Path
from loadtests.generator import GeneratorProcess
with GeneratorProcess(cores=None, log=Path(sys.argv[1])) as generator:
    print(generator.next_rows_file().parent, generator.pid, sep="\\n", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _ahead() -> Iterator[None]:
    with ahead_of_other_work():
        yield


@pytest.fixture
def texts_file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("what is this?\nwho was that?\n")
    return path


@pytest.mark.long
def test_the_capacity_of_a_known_server_is_where_its_p99_crosses_the_slo(tmp_path: Path, texts_file: Path) -> None:
    config = LoadTestConfig(
        slo_s=0.05, single_stream_s=0.5, probe_s=1, confirm_s=3, confirm_max_s=5, idle_s=0, max_probes=7
    )
    with known_server(tmp_path, "--service-s", "0.005") as target:
        found = load_test(config, target, texts_file=texts_file, folder=tmp_path).result
    assert isinstance(found, Capacity)
    assert load_as(Capacity, tmp_path / "known.external.capacity.json") == found
    assert found.max_qps_at_slo is not None
    # A confirming run shows with 99 % confidence that p99 holds, so it lies below the exact crossing.
    assert md1_sojourn_s(0.99, rate_qps=found.max_qps_at_slo, service_s=0.005) < 0.055
    assert 90 < found.max_qps_at_slo < 165
    confirmation = load_as(LoadTestRun, tmp_path / found.confirmation[0])
    assert confirmation.valid
    assert confirmation.meets_slo


def at_150_qps(folder: Path, texts_file: Path, service_s: float, baseline: Path | None = None) -> tuple[Finding, Path]:
    """Load-test a known server; again, as the checks advise, where they say that the generator's machine paused."""
    for attempt in range(3):
        out = folder / str(attempt)
        with known_server(folder, "--service-s", str(service_s)) as target:
            found = load_test(
                LoadTestConfig(),
                target,
                texts_file=texts_file,
                folder=out,
                rate_qps=150,
                duration_s=4,
                baseline=baseline,
            )
        assert isinstance(found.result, LoadTestRun)
        if not OWN_RULES & {check.name for check in found.result.checks if not check.passed}:
            break
    return found, out / "known.external.Server.1.json"


def test_a_load_test_ends_in_one_verdict_and_is_held_against_a_baseline(tmp_path: Path, texts_file: Path) -> None:
    first, baseline = at_150_qps(tmp_path / "before", texts_file, 0.002)
    second, _ = at_150_qps(tmp_path / "slower", texts_file, 0.004, baseline)
    run = first.result
    assert isinstance(run, LoadTestRun)
    assert load_as(LoadTestRun, baseline) == run
    assert first.verdict is Verdict.HOLDS
    assert verdict(run.model_copy(update={"meets_slo": False})) is Verdict.MISSES
    assert verdict(run.model_copy(update={"valid": False})) is Verdict.INVALID
    assert second.ratios[0].figure == "p50"
    assert second.ratios[0].value == pytest.approx(2, rel=0.4)
    assert second.ratios[0].regressed
    assert second.verdict is Verdict.MISSES


def test_a_url_where_nothing_answers_is_refused(tmp_path: Path, texts_file: Path) -> None:
    target = Target(url=f"http://127.0.0.1:{free_port()}", variant="none", profile="external", model="m")
    with pytest.raises(UserError, match=r"nothing answers.*help:"):
        load_test(LoadTestConfig(), target, texts_file=texts_file, folder=tmp_path, rate_qps=10, duration_s=1)


def test_a_server_that_speaks_another_protocol_is_refused(tmp_path: Path, texts_file: Path) -> None:
    with known_server(tmp_path) as target:
        other = Target(url=target.url, variant="known", profile="external", model="m", protocol="hf")
        with pytest.raises(UserError, match=r"not_an_answer.*help:"):
            load_test(LoadTestConfig(), other, texts_file=texts_file, folder=tmp_path, rate_qps=10, duration_s=1)


def test_a_server_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    server = ServerProcess(command, url="http://127.0.0.1:9", cores=None, log=tmp_path / "server.log")
    with pytest.raises(UserError, match=r"ended with status 1 before it was ready.*\n.*no such model"), server:
        pass


def test_the_locustfile_runs_by_itself(tmp_path: Path, texts_file: Path) -> None:
    rows = tmp_path / "rows.parquet"
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    command += ["--rate", "100", "--duration", "1", "--texts", str(texts_file), "--rows", str(rows)]
    with known_server(tmp_path, "--service-s", "0.001") as target:
        done = subprocess.run([*command, "-H", target.url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert read_rows(rows).ok.sum() == 100
    assert "/v2/models/model/infer" in done.stdout + done.stderr


def test_the_locustfile_without_a_server_ends_with_status_3(texts_file: Path) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--texts", str(texts_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "help: give -H URL" in done.stderr


def test_two_processes_share_a_plan_and_ship_every_row(tmp_path: Path, texts_file: Path) -> None:
    with (
        known_server(tmp_path, "--service-s", "0.001") as target,
        GeneratorProcess(cores=None, log=tmp_path / "generator.log", processes=2) as generator,
    ):
        for rate_qps in (100.0, 200.0):
            plan = Plan(
                url=target.url,
                texts_file=texts_file,
                rate_qps=rate_qps,
                duration_s=1,
                rows_file=tmp_path / "rows.parquet",
            )
            outcome = generator.run(plan)
            rows = read_rows(outcome.rows_file)
            assert outcome.processes == 2
            assert outcome.num_scheduled == len(rows) == rate_qps
            assert rows.ok.all()
            assert rows.scheduled_s == pytest.approx(draw(Arrivals(), rate_qps=rate_qps, duration_s=1, seed=1))
            assert np.quantile(rows.lag_s, 0.9) < 0.05


def test_a_generator_leaves_no_rows_behind_however_it_or_its_runner_ends(tmp_path: Path) -> None:
    log = tmp_path / "generator.log"
    with GeneratorProcess(cores=None, log=log) as generator:
        kept = generator.next_rows_file().parent
        assert kept.is_dir()
    assert not kept.exists()
    with GeneratorProcess(cores=None, log=log) as generator:
        kept = generator.next_rows_file().parent
        os.kill(generator.pid, signal.SIGKILL)
    assert not kept.exists()
    runner = subprocess.Popen([sys.executable, "-c", KILLED_RUNNER, str(log)], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    kept, orphan = Path(runner.stdout.readline().strip()), psutil.Process(int(runner.stdout.readline()))
    assert kept.is_dir()
    runner.kill()
    runner.wait()
    runner.stdout.close()
    orphan.wait(60)
    assert not kept.exists()
