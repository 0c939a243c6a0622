"""A master and its workers on two hosts: a network namespace is the second, with an address of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtests.arrivals import draw
from loadtests.generator import LOCUSTFILE
from loadtests.plan import Arrivals
from loadtests.rows import read_rows
from loadtests.server import free_ports
from tests.known import known_server

pytestmark = pytest.mark.integration

LOCUST = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE)]
NUM_QUERIES = 200


@dataclass(frozen=True)
class Hosts:
    """This host's address on the cable between the two, and what starts a program on the other one."""

    address: str
    on_the_other: tuple[str, ...]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if shutil.which("ip") is None:
        pytest.skip("no iproute2: a second host cannot be made")
    pid = os.getpid()
    space, here, there = f"breakeven-{pid}", f"be{pid}a", f"be{pid}b"
    network = f"10.213.{pid % 250}"
    inside = ("ip", "netns", "exec", space)
    with ExitStack() as stack:
        made = subprocess.run(["ip", "netns", "add", space], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no network namespaces: {made.stderr.strip()}")
        # Its end of the cable goes with it, and so does this one.
        stack.callback(subprocess.run, ["ip", "netns", "del", space], check=True)
        for command in (
            f"ip link add {here} type veth peer name {there} netns {space}",
            f"ip addr add {network}.1/24 dev {here}",
            f"ip link set {here} up",
        ):
            laid = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if laid.returncode:
                pytest.skip(f"no cable between network namespaces: {laid.stderr.strip()}")
        subprocess.run([*inside, *f"ip addr add {network}.2/24 dev {there}".split()], check=True)
        subprocess.run([*inside, *f"ip link set {there} up".split()], check=True)
        yield Hosts(f"{network}.1", inside)


def test_workers_on_two_hosts_share_a_plan_and_ship_every_row(tmp_path: Path, hosts: Hosts) -> None:
    texts, rows_file = tmp_path / "texts.txt", tmp_path / "rows.parquet"
    texts.write_text("what is this?\nwho was that?\n")
    port = str(free_ports(1)[0])
    plan = ["--rate", str(NUM_QUERIES), "--duration", "1", "--texts", str(texts), "--rows", str(rows_file)]
    with ExitStack() as stack:
        target = stack.enter_context(known_server(tmp_path, "--service-s", "0.001", host=hosts.address))
        for name, starter in {"here": (), "there": hosts.on_the_other}.items():
            folder = tmp_path / name
            folder.mkdir()
            command = [*starter, *LOCUST, "--worker", "--master-host", hosts.address, "--master-port", port]
            log = stack.enter_context((folder / "log").open("wb"))
            worker = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            stack.callback(worker.wait, 60)
            stack.callback(worker.terminate)
        master = [*LOCUST, "--master", "--expect-workers", "2", "--headless", "--only-summary", "-H", target.url, *plan]
        master += ["--master-bind-host", hosts.address, "--master-bind-port", port]
        done = subprocess.run(master, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    rows = read_rows(rows_file)
    assert rows.ok.all()
    assert rows.scheduled_s == pytest.approx(draw(Arrivals(), rate_qps=NUM_QUERIES, duration_s=1, seed=1))
