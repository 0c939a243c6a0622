import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import machine, meter
from testbed.meter import Meter, tree_rss_bytes


def test_the_description_is_of_this_machine() -> None:
    described = machine.describe()
    assert described.logical_cores == os.cpu_count()
    assert 0 < described.usable_cores <= len(os.sched_getaffinity(0))
    assert described.memory_bytes > 10**8


def test_a_cgroup_quota_below_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert machine.usable_cores() == 0.5
    assert machine.memory_bytes() == 1_000_000


def test_the_tightest_limit_from_the_own_cgroup_to_the_root_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "fs" / "machine.slice" / "run.scope"
    own.mkdir(parents=True)
    (tmp_path / "self").write_text("0::/machine.slice/run.scope\n")
    (own / "cpu.max").write_text("max 100000\n")
    (own.parent / "cpu.max").write_text("25000 100000\n")
    (own / "memory.max").write_text("2000000\n")
    (own.parent / "memory.max").write_text("3000000\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "fs")
    monkeypatch.setattr(machine, "SELF_CGROUP", tmp_path / "self")
    assert machine.usable_cores() == 0.25
    assert machine.memory_bytes() == 2_000_000


def test_the_commit_of_a_checkout_that_only_holds_our_installation_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / ".venv" / "site-packages" / "testbed" / "machine.py"
    installed.parent.mkdir(parents=True)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "theirs")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(machine, "__file__", str(installed))
    assert machine.git_commit() is None
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "testbed" / "machine.py"))
    (tmp_path / "testbed").mkdir()
    assert len(machine.git_commit() or "") == 40


def test_a_cgroup_without_limits_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert machine.cgroup_cpu_quota() is None
    assert machine.memory_bytes() > 10**8


def test_flags_are_read_from_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cpuinfo", lambda: ("model name\t: Toy CPU", "flags\t\t: fpu avx2 avx512_vnni sse"))
    assert machine.isa() == ("avx2", "avx512_vnni")
    assert machine.cpu_model() == "Toy CPU"


def test_the_window_counts_cpu_and_wall_time() -> None:
    with Meter() as window:
        begin_s = time.monotonic()
        while time.monotonic() - begin_s < 0.2:
            pass
    assert window.usage is not None
    assert window.usage.wall_s >= 0.2
    assert window.usage.cpu_s > 0.02
    assert window.usage.device_s is None


def test_peak_memory_is_of_the_window_not_of_the_life() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the kernel keeps no resettable peak")
    block = bytearray(200_000_000)
    del block
    with Meter() as window:
        pass
    with Meter() as larger:
        block = bytearray(300_000_000)
        del block
    assert window.usage is not None
    assert larger.usage is not None
    assert (larger.usage.peak_rss_bytes or 0) - (window.usage.peak_rss_bytes or 0) > 250_000_000


def test_a_process_tree_is_counted_whole() -> None:
    child = "x = bytearray(10**8); print(1, flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"1\n"
        assert tree_rss_bytes(parent.pid) > 10**8
        parent.communicate(b"\n")


def test_energy_without_counter_or_watts_is_null_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_rapl_uj", lambda: None)
    usage = Meter().begin().end()
    assert usage.energy.energy_j is None
    assert "no energy counter" in (usage.energy.reason or "")


def test_watts_from_the_price_book_are_marked_as_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_rapl_uj", lambda: None)
    usage = Meter(assumed_watts=100.0, assumed_from="prices.yaml cpu").begin().end()
    assert usage.energy.method == "estimate"
    assert usage.energy.energy_j == pytest.approx(100.0 * usage.wall_s)


def test_a_powercap_counter_is_read_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "intel-rapl:0"
    package.mkdir()
    (package / "energy_uj").write_text("1000000\n")
    monkeypatch.setattr(meter, "POWERCAP", tmp_path)
    window = Meter().begin()
    (package / "energy_uj").write_text("3500000\n")
    energy = window.end().energy
    assert (energy.energy_j, energy.method) == (2.5, "rapl")
