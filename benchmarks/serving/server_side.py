"""Our server from the inside: what is its share of the in-process limit, of a request's CPU, and what does overload do?

    python benchmarks/serving/server_side.py BUNDLE --variant student-int8 --texts runs/…/dataset/test.jsonl --into FILE

The server runs on the first core, this program on the second. Everything is measured ``--rounds`` times, in process and
served in turn, and the share of the in-process limit is that of pairs seconds apart: a drift of the machine meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from bare import cpu_us
from wire import Generator, Seen, requests

from serve.config import ServeSettings
from serve.loading import open_engine
from testbed import machine
from testbed.bundle import Bundle
from testbed.records import write_atomically

ROOT = Path(__file__).parents[2]
SECONDS = 4.0
SLO_S = 0.05
# In process and served in turn, seconds apart, while the machine is the same.
PAIRS = 5
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


def overload(port: int, pid: int, payloads: list[bytes], capacity: float, loop_cpu_us: float) -> list[dict[str, Any]]:
    """Offer 0.5 to 3 times the capacity, then half of it again: goodput, what a refusal costs, and the recovery.

    ``loop_cpu_us`` is what an answered request costs the event loop at saturation: what is left of the loop's time at
    an overload, by its refusals, is what one of them costs.
    """
    found = []
    for share in (0.5, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0):
        before = thread_cpu_s(pid)
        seen = Generator(port, payloads).open(share * capacity, SECONDS)
        after = thread_cpu_s(pid)
        row = _overload_row(share, share * capacity, seen)
        row["loop_cpu_share"] = (after[str(pid)] - before[str(pid)]) / SECONDS
        row["cpu_share"] = (sum(after.values()) - sum(before.get(name, 0.0) for name in after)) / SECONDS
        if (refused := seen.statuses[503] + seen.statuses[429]) > SECONDS * capacity / 4:
            answers_s = seen.statuses[200] * loop_cpu_us / 1e6
            row["refusal_cpu_us"] = (row["loop_cpu_share"] * SECONDS - answers_s) / refused * 1e6
        found.append(row)
    begin_s = time.perf_counter()
    after_it = Generator(port, payloads).open(0.5 * capacity, 3.0)
    late = [answered for answered, latency in after_it.answers if latency > SLO_S]
    row = _overload_row(0.5, 0.5 * capacity, after_it)
    return [*found, {**row, "recovered_in_s": max(late, default=begin_s) - begin_s}]


def _overload_row(share: float, offered: float, seen: Seen) -> dict[str, Any]:
    return {
        "share": share,
        "offered": offered,
        "answered": seen.rate,
        "goodput": seen.goodput(SLO_S),
        "p99_ms": seen.latency_ms(0.99),
        "statuses": dict(seen.statuses),
    }


def memory(pid: int) -> dict[str, dict[str, int]]:
    """Return resident and proportional bytes of the worker and of its supervisor."""
    worker = psutil.Process(pid)
    found = {"supervisor": worker.parent(), "worker": worker}
    sizes = {name: process.memory_full_info() for name, process in found.items() if process is not None}
    return {name: {"rss_bytes": size.rss, "pss_bytes": size.pss} for name, size in sizes.items()}


def idle_share(pid: int) -> float:
    """Return the share of a core that the worker takes without a request, over ``SECONDS``."""
    time.sleep(2)  # until what the load before it left behind has been answered
    before = sum(thread_cpu_s(pid).values())
    time.sleep(SECONDS)
    return (sum(thread_cpu_s(pid).values()) - before) / SECONDS


def starts(options: argparse.Namespace, payloads: list[bytes], count: int) -> list[dict[str, float]]:
    """Start the server again and again: token budget, and texts a batch at one and the same load."""
    found = []
    for _ in range(count):
        with served(options) as (port, _pid):
            name = Bundle(options.bundle).manifest.name
            about = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{name}").read())
            before = part_seconds(port)
            seen = Generator(port, payloads).closed(32, SECONDS / 2)
            batches = part_seconds(port)["batches"] - before["batches"]
        budget = about["parameters"]["token_budget"]
        found.append({"token_budget": budget, "rate": seen.rate, "texts_per_batch": seen.statuses[200] / batches})
    return found


def one_round(options: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Measure in process and served, in turn."""
    payloads = requests(f"/v2/models/{Bundle(options.bundle).manifest.name}/infer", OIP_BODY, texts)
    limits = in_process(options.bundle, options.variant, options.texts, [1, 4, 8, 12, 16])
    found: dict[str, Any] = {"in_process": limits, "pairs": []}
    best = max(limits, key=lambda size: limits[size])
    with served(options) as (port, pid):
        Generator(port, payloads).closed(8, 1.0)
        for _ in range(PAIRS):
            limit = in_process(options.bundle, options.variant, options.texts, [int(best)])[best]
            rate, http_us = saturate(port, pid, payloads, 32)["rate"], cpu_us(payloads, 32, SECONDS / 2)
            found["pairs"].append({"in_process": limit, "served": rate, "http_us": http_us})
        found["closed"] = [saturate(port, pid, payloads, connections) for connections in (1, 8, 32, 64)]
        found["health_under_load"] = health_under_load(port, payloads)
        found["memory"] = memory(pid)
        found["idle_cpu_share"] = idle_share(pid)
    return found


def main() -> None:
    """Measure and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--texts", type=Path, required=True, help="JSON lines with a field text")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--parts", nargs="*", default=["rounds", "overload", "starts"])
    parser.add_argument("--in-process", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts = [json.loads(line)["text"] for line in options.texts.read_text(encoding="utf-8").splitlines()]
    random.Random(0).shuffle(texts)
    if options.in_process:
        print_in_process(options, texts)
        return
    found = json.loads(options.into.read_text()) if options.into and options.into.exists() else {}
    found |= {"machine": machine.describe().model_dump(mode="json"), "commit": machine.git_commit()}
    os.sched_setaffinity(0, {1})
    if "rounds" in options.parts:
        found["rounds"] = [one_round(options, texts) for _ in range(options.rounds)]
        found["load_average"] = os.getloadavg()
    payloads = requests(f"/v2/models/{Bundle(options.bundle).manifest.name}/infer", OIP_BODY, texts)
    if "overload" in options.parts:
        best = max((run for done in found["rounds"] for run in done["closed"]), key=lambda run: run["rate"])
        with served(options, "--slo-ms", str(SLO_S * 1e3)) as (port, pid):
            Generator(port, payloads).closed(8, 1.0)
            found["overload"] = overload(port, pid, payloads, best["rate"], best["loop_cpu_us"])
    if "starts" in options.parts:
        found["starts"] = starts(options, payloads, options.starts)
    if options.into:
        write_atomically(options.into, lambda temporary: temporary.write_text(json.dumps(found, indent=1) + "\n"))
    print(table(found))


def table(found: dict[str, Any]) -> str:
    """Return the figures as the results' README has them."""
    lines = ["| | " + " | ".join(f"round {n + 1}" for n in range(len(found["rounds"]))) + " | aim |"]
    lines.append("|---|" + "--:|" * (len(found["rounds"]) + 1))
    for title, aim, cell in ROWS:
        lines.append(f"| {title} | " + " | ".join(cell(done) for done in found["rounds"]) + f" | {aim} |")
    lines += ["", "| offered | answered/s | within 50 ms/s | p99, ms | loop, share of the core | a refusal, µs |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for row in found.get("overload", []):
        cost = f"{row['refusal_cpu_us']:.0f}" if "refusal_cpu_us" in row else ""
        share = f"{row['loop_cpu_share']:.2f}" if "loop_cpu_share" in row else ""
        figures = f"{row['answered']:.0f} | {row['goodput']:.0f} | {row['p99_ms']:.0f} | {share} | {cost}"
        lines.append(f"| {row['share']}× | {figures} |")
    if "overload" in found:
        best = max(row["goodput"] for row in found["overload"])
        kept = next(row["goodput"] for row in found["overload"] if row["share"] == 3.0) / best
        recovered_s = found["overload"][-1]["recovered_in_s"]
        lines += ["", f"At 3× {kept:.0%} of the best goodput stays; recovered in {recovered_s:.2f} s."]
    for number, start in enumerate(found.get("starts", [])):
        lines.append(f"start {number + 1}: " + ", ".join(f"{name} {value:.4g}" for name, value in start.items()))
    return "\n".join(lines)


def _shares(done: dict[str, Any]) -> str:
    shares = sorted(pair["served"] / pair["in_process"] for pair in done["pairs"])
    bare = statistics.median(1 / (1 + pair["in_process"] * pair["http_us"] / 1e6) for pair in done["pairs"])
    return f"{statistics.median(shares):.2f} ({shares[0]:.2f} to {shares[-1]:.2f}); {bare:.2f}"


ROWS = (
    ("in process, packed, tokenized, best of 1 to 16 texts", "", lambda d: f"{max(d['in_process'].values()):.0f}/s"),
    (
        "saturated, 8 / 32 / 64 connections",
        "",
        lambda d: " / ".join(f"{run['rate']:.0f}" for run in d["closed"][1:]) + "/s",
    ),
    ("share of the in-process limit, 32 connections: median of pairs (range); bare HTTP", "≥ 0.88", _shares),
    (
        "p50 alone, beyond the time in process",
        "+ 0.5 ms",
        lambda d: f"+ {d['closed'][0]['p50_ms'] - 1e3 / d['in_process']['1']:.2f} ms",
    ),
    (
        "the event loop's CPU a request at 8 / 32 / 64 connections",
        "250 µs",
        lambda d: " / ".join(f"{run['loop_cpu_us']:.0f}" for run in d["closed"][1:]) + " µs",
    ),
    ("health checks' p99 at saturation", "50 ms", lambda d: f"{d['health_under_load']['p99_ms']:.1f} ms"),
    (
        "resident memory, both processes (shared pages counted once)",
        "200 MB",
        lambda d: (
            f"{sum(part['rss_bytes'] for part in d['memory'].values()) / 1e6:.0f} "
            f"({sum(part['pss_bytes'] for part in d['memory'].values()) / 1e6:.0f}) MB"
        ),
    ),
    ("the idle worker's CPU", "1 % of a core", lambda d: f"{d['idle_cpu_share']:.2%}"),
)


if __name__ == "__main__":
    main()
