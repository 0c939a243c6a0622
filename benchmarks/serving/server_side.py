"""Our server from the inside: what is its share of the in-process limit, of a request's CPU, and what does overload do?

    python benchmarks/serving/server_side.py BUNDLE --variant student-int8 --texts runs/…/dataset/test.jsonl --into FILE

The server runs on the first core, this program on the second. Everything is measured ``--rounds`` times in turn, in
process and served, so that a drift of the machine meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml
from wire import Generator, Seen, requests

from serve.config import ServeSettings
from serve.loading import open_engine
from testbed import machine
from testbed.bundle import Bundle
from testbed.records import write_atomically

ROOT = Path(__file__).parents[2]
SECONDS = 4.0
SLO_S = 0.05
OIP_BODY = '{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [{{text}}]}]}'


def in_process(bundle: Path, variant: str, texts: Path, sizes: list[int]) -> dict[str, float]:
    """Return texts a second of the packed engine without a server, tokenization included, by texts in a batch."""
    program = [sys.executable, str(Path(__file__)), str(bundle), "--variant", variant, "--texts", str(texts)]
    done = subprocess.run(
        ["taskset", "-c", "0", *program, "--in-process", *map(str, sizes)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def print_in_process(options: argparse.Namespace, texts: list[str]) -> None:
    """Measure what ``in_process`` asks for, in this process."""
    bundle = Bundle(options.bundle)
    settings = ServeSettings(bundle=options.bundle, threads=1)
    engine, _ = open_engine(bundle, bundle.manifest.variant(options.variant), settings, packed=True)
    rates = {}
    for size in options.in_process:
        for text in texts[:32]:
            engine.compute([text])
        count, begin_s = 0, time.perf_counter()
        while time.perf_counter() < begin_s + SECONDS / 2:
            start = count % (len(texts) - size)
            engine.compute(texts[start : start + size])
            count += size
        rates[str(size)] = count / (time.perf_counter() - begin_s)
    print(json.dumps(rates))


@contextmanager
def served(options: argparse.Namespace, *more: str):  # noqa: ANN201 - (port, pid of the worker)
    """Start our server on core 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "serve", str(options.bundle), "--variant", options.variant, "--port", str(port)]
    process = subprocess.Popen(
        ["taskset", "-c", "0", *command, "--threads", "1", *more], cwd=ROOT, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        while not ready(port):
            assert process.poll() is None
            time.sleep(0.1)
        yield port, psutil.Process(process.pid).children()[0].pid
    finally:
        process.terminate()
        process.wait()


def ready(port: int) -> bool:
    """Return whether the server answers."""
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=2).status == 200
    except OSError:
        return False


def thread_cpu_s(pid: int) -> dict[str, float]:
    """Return the CPU seconds of a process's threads; the first one is the event loop's."""
    tasks = Path(f"/proc/{pid}/task")
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks.iterdir()}


def part_seconds(port: int) -> dict[str, float]:
    """Return the server's own sums: seconds inside ONNX Runtime, and batches."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    return {name: _metric_sum(text, f"breakeven_{name}_total") for name in ("compute_seconds", "batches")}


def _metric_sum(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}\{{.*\}} (.*)$", text, re.MULTILINE))


def saturate(port: int, pid: int, payloads: list[bytes], connections: int) -> dict[str, Any]:
    """Closed loop: rate, latency, and CPU microseconds a request by thread."""
    before, parts = thread_cpu_s(pid), part_seconds(port)
    seen = Generator(port, payloads).closed(connections, SECONDS)
    after, parts_after = thread_cpu_s(pid), part_seconds(port)
    spent = {name: after[name] - before.get(name, 0.0) for name in after}
    loop_s = spent.pop(str(pid))
    count = seen.statuses[200]
    return {
        "connections": connections,
        "rate": seen.rate,
        "p50_ms": seen.latency_ms(0.5),
        "p99_ms": seen.latency_ms(0.99),
        "statuses": dict(seen.statuses),
        "texts_per_batch": count / max(1.0, parts_after["batches"] - parts["batches"]),
        "loop_cpu_us": loop_s / count * 1e6,
        "lane_cpu_us": sum(spent.values()) / count * 1e6,
        "compute_wall_us": (parts_after["compute_seconds"] - parts["compute_seconds"]) / count * 1e6,
    }


def health_under_load(port: int, payloads: list[bytes]) -> dict[str, float]:
    """Return latencies of /v2/health/live while 64 connections saturate the server."""
    took: list[float] = []
    over = threading.Event()

    def check() -> None:
        while not over.is_set():
            begin_s = time.perf_counter()
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/live", timeout=10).read()
            took.append(time.perf_counter() - begin_s)
            time.sleep(0.005)

    checker = threading.Thread(target=check)
    checker.start()
    Generator(port, payloads).closed(64, SECONDS)
    over.set()
    checker.join()
    took.sort()
    return {"checks": len(took), "p50_ms": took[len(took) // 2] * 1e3, "p99_ms": took[int(len(took) * 0.99)] * 1e3}


def overload(port: int, payloads: list[bytes], capacity: float) -> list[dict[str, Any]]:
    """Offer 0.5 to 3 times the capacity, then half of it again: goodput, and how long the recovery takes."""
    found = []
    for share in (0.5, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0):
        seen = Generator(port, payloads).open(share * capacity, SECONDS)
        found.append(_overload_row(share, share * capacity, seen))
    begin_s = time.perf_counter()
    after = Generator(port, payloads).open(0.5 * capacity, 3.0)
    late = [answered for answered, latency in after.answers if latency > SLO_S]
    found.append({**_overload_row(0.5, 0.5 * capacity, after), "recovered_in_s": max(late, default=begin_s) - begin_s})
    return found


def _overload_row(share: float, offered: float, seen: Seen) -> dict[str, Any]:
    return {
        "share": share,
        "offered": offered,
        "answered": seen.rate,
        "goodput": seen.goodput(SLO_S),
        "p99_ms": seen.latency_ms(0.99),
        "statuses": dict(seen.statuses),
    }


def peers(options: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Saturate each peer, closed loop, on the same core; its best of 8, 32 and 64 connections."""
    folder = Path(__file__).with_name("peers")
    found: dict[str, Any] = {}
    for number, peer in enumerate(yaml.safe_load((folder / "peers.yaml").read_text())["peers"]):
        python, port = options.environments / peer["name"] / "bin" / "python", 8300 + 10 * number
        words = {"{python}": str(python), "{folder}": str(folder), "{bundle}": str(options.bundle)}
        words |= {"{variant}": options.variant, "{port}": str(port)}
        command = [words.get(part, part.replace("{folder}", str(folder))) for part in peer["command"]]
        process = subprocess.Popen(
            ["taskset", "-c", "0", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            give_up_s = time.monotonic() + 60
            while not _answers(port, peer["ready"]) and time.monotonic() < give_up_s:
                time.sleep(0.2)
            payloads = requests(peer["template"]["path"], peer["template"]["body"], texts)
            Generator(port, payloads).closed(8, 1.0)
            runs = {
                connections: Generator(port, payloads).closed(connections, SECONDS / 2)
                for connections in (1, 8, 32, 64)
            }
            found[peer["name"]] = {
                "rates": {str(connections): seen.rate for connections, seen in runs.items()},
                "p50_ms_alone": runs[1].latency_ms(0.5),
                "rss_bytes": sum(p.memory_info().rss for p in _tree(process.pid)),
            }
        except OSError as error:
            found[peer["name"]] = {"error": str(error)}
        finally:
            for one in _tree(process.pid):
                one.kill()
            process.wait()
        print(peer["name"], found[peer["name"]], file=sys.stderr)
    return found


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return []
    return [*root.children(recursive=True), root]


def _answers(port: int, path: str) -> bool:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).status == 200
    except OSError:
        return False


def one_round(options: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Measure in process, then served."""
    payloads = requests(f"/v2/models/{Bundle(options.bundle).manifest.name}/infer", OIP_BODY, texts)
    found: dict[str, Any] = {
        "in_process": in_process(options.bundle, options.variant, options.texts, [1, 4, 8, 12, 16])
    }
    with served(options) as (port, pid):
        Generator(port, payloads).closed(8, 1.0)
        found["closed"] = [saturate(port, pid, payloads, connections) for connections in (1, 8, 32, 64)]
        found["health_under_load"] = health_under_load(port, payloads)
        found["rss_bytes"] = sum(process.memory_info().rss for process in _tree(psutil.Process(pid).ppid()))
    return found


def main() -> None:
    """Measure and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines with a field text")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="*", default=["rounds", "overload", "peers"])
    parser.add_argument("--environments", type=Path, default=Path(".cache/peers"))
    parser.add_argument("--in-process", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts = [json.loads(line)["text"] for line in options.texts.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(texts)
    if options.in_process:
        print_in_process(options, texts)
        return
    found = json.loads(options.into.read_text()) if options.into.exists() else {}
    found |= {"machine": machine.describe().model_dump(mode="json"), "commit": machine.git_commit()}
    os.sched_setaffinity(0, {1})
    if "rounds" in options.parts:
        found["rounds"] = [one_round(options, texts) for _ in range(options.rounds)]
        found["load_average"] = os.getloadavg()
    if "overload" in options.parts:
        rates = sorted(run["rate"] for done in found["rounds"] for run in done["closed"])
        payloads = requests(f"/v2/models/{Bundle(options.bundle).manifest.name}/infer", OIP_BODY, texts)
        with served(options, "--slo-ms", str(SLO_S * 1e3)) as (port, _):
            Generator(port, payloads).closed(8, 1.0)
            found["overload"] = overload(port, payloads, rates[-1])
    if "peers" in options.parts:
        found["peers"] = peers(options, texts)
    text = json.dumps(found, indent=1) + "\n"
    write_atomically(options.into, lambda temporary: temporary.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main()
