"""What keeps a server from starting is told in one line, with a non-zero exit; what it warns of is in its log."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import onnxruntime
import psutil
import pytest
import tritonclient.http as triton

from loadtests.cores import pinned
from serve.config import ServeSettings
from serve.curve import LEAST_ROUNDS
from serve.engine import Engine
from serve.repository import Repository
from serve.turns import SLICE_S, step_back
from testbed.bundle import Bundle, write_manifest
from tests.scheduling import slice_of
from tests.served import ROOT, WORDS, Running, refused, running, write_bundle

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "words")


def one_line(said: str) -> str:
    found = [line for line in said.splitlines() if not line.startswith("{")]
    assert len(found) == 1, said
    assert found[0].startswith("error: ")
    assert "; help: " in found[0]
    return found[0]


def test_no_bundle() -> None:
    status, said = refused("nowhere")
    assert status == 1
    assert "no such bundle" in one_line(said)


def test_unknown_variant_names_those_there_are(bundle: Path) -> None:
    status, said = refused(str(bundle), "--variant", "student-int3", "--port", "0")
    assert status == 1
    assert "student-fp32" in one_line(said)


@pytest.mark.parametrize("name", ["variants/student-fp32.packed.onnx", "tokenizer.json"])
def test_damaged_file(bundle: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    status, said = refused(str(copy), "--port", "0")
    assert status == 1
    assert "damaged or changed" in one_line(said)


def test_damaged_manifest(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    (copy / "manifest.json").write_bytes((bundle / "manifest.json").read_bytes()[:-20])
    status, said = refused(str(copy), "--port", "0")
    assert status == 1
    assert "not a readable record" in one_line(said)


def test_goldens_that_do_not_hold(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    manifest = Bundle(copy).manifest
    wrong = manifest.goldens[0].model_copy(update={"logits": (9.0, 9.0, 9.0)})
    write_manifest(manifest.model_copy(update={"goldens": (wrong,)}), copy)
    status, said = refused(str(copy), "--port", "0")
    assert status == 1
    assert "golden text" in one_line(said)


def test_port_in_use(bundle: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, said = refused(str(bundle), "--port", str(taken.getsockname()[1]))
    assert status == 1
    assert "in use" in one_line(said)


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="there is a GPU build here"
)
def test_gpu_profile_never_falls_back(bundle: Path) -> None:
    status, said = refused(str(bundle), "--profile", "gpu", "--port", "0")
    assert status == 1
    assert "CUDAExecutionProvider" in one_line(said)


def test_tls_files_that_do_not_fit(bundle: Path) -> None:
    status, said = refused(str(bundle), "--port", "0", "--tls-certificate", "nowhere.pem", "--tls-key", "nowhere.pem")
    assert status == 1
    assert "TLS" in one_line(said)


def test_packed_policy_needs_the_packed_layout(tmp_path: Path) -> None:
    plain = write_bundle(tmp_path / "plain", packed=False)
    status, said = refused(str(plain), "--policy", "packed", "--port", "0")
    assert status == 1
    assert "no packed layout" in one_line(said)
    with running(plain) as server:
        assert httpx.get(f"{server.url}/v2/models/words").json()["parameters"]["policy"] == "sorted"


def test_fp16_on_a_cpu_starts_with_a_warning(tmp_path: Path) -> None:
    with running(write_bundle(tmp_path / "half", precision="fp16")) as server:
        assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
    assert any("saves disk, not time" in line for line in server.lines)


def test_readiness_names_another_instruction_set(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy")
    manifest = Bundle(copy).manifest
    elsewhere = manifest.variants[0].model_copy(update={"isa": ("avx1024_vnni",)})
    write_manifest(manifest.model_copy(update={"variants": (elsewhere,)}), copy)
    for folder, named in ((bundle, False), (copy, True)):
        with running(folder) as server:
            health = httpx.get(f"{server.url}/v2/health/ready")
            model = httpx.get(f"{server.url}/v2/models/words/ready")
            client = triton.InferenceServerClient(server.url.removeprefix("http://"))
            assert client.is_server_ready()
            assert client.is_model_ready("words")
        assert health.status_code == model.status_code == 200
        assert ("lacks avx1024_vnni" in (model.json()["warning"] or "")) is named
        assert health.json()["warnings"] == ({"words": model.json()["warning"]} if named else {})
        assert any("avx1024_vnni" in line for line in server.lines) is named


def test_edge_profile_has_one_thread_and_a_memory_cap(bundle: Path) -> None:
    with running(bundle, "--profile", "edge", "--host", "0.0.0.0") as server:
        assert httpx.get(f"{server.url}/v2/models/words").json()["proof"]["threads"] == 1
        worker = server.events("model warm")[0]["pid"]
        limits = Path(f"/proc/{worker}/limits").read_text(encoding="ascii")
    assert str(512 * 2**20) in next(line for line in limits.splitlines() if line.startswith("Max data size"))
    assert any("without an API key" in line for line in server.lines)


def test_api_keys_open_everything_but_health(bundle: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-secret\nsecond-secret\n", encoding="utf-8")
    with running(bundle, "--api-keys", str(keys), "--access-log", BREAKEVEN_API_KEYS="third-secret") as server:
        body = {"inputs": "cat"}
        for path in ("/predict", "/v2/models/words/infer", "/v1/models/words:predict"):
            assert httpx.post(server.url + path, json=body).status_code == 401
        assert httpx.get(f"{server.url}/metrics").status_code == 401
        assert httpx.get(f"{server.url}/v2/health/live").json() == {"live": True}
        for headers in (
            {"authorization": "Bearer first-secret"},
            {"x-api-key": "second-secret"},
            {"x-api-key": "third-secret"},
        ):
            assert httpx.post(f"{server.url}/predict", json=body, headers=headers).status_code == 200
        assert httpx.post(f"{server.url}/predict", json=body, headers={"x-api-key": "secret"}).status_code == 401
    assert "secret" not in "".join(server.lines)


def test_a_log_that_cannot_be_written_stops_nothing(bundle: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "serve", str(bundle), "--port", str(port), "--threads", "1", "--access-log"]
    with Path("/dev/full").open("w", encoding="ascii") as full:
        server = Running(subprocess.Popen(command, cwd=ROOT, stderr=full, text=True), f"http://127.0.0.1:{port}")
    server.wait_until_ready()
    assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
    assert server.terminate() == 0


def test_a_memory_cap_that_is_too_small(bundle: Path) -> None:
    status, said = refused(str(bundle), "--memory-mb", "64", "--port", "0")
    assert status == 1
    assert "memory" in one_line(said)


@pytest.mark.parametrize("usual", [os.SCHED_OTHER, os.SCHED_BATCH])
def test_the_event_loop_alone_waits_for_its_turn_unless_all_were_told_to(bundle: Path, usual: int) -> None:
    os.sched_setscheduler(0, usual, os.sched_param(0))
    try:
        with running(bundle, "--threads", "2") as server:
            assert httpx.post(f"{server.url}/predict", json={"inputs": "cat"}).status_code == 200
            worker = psutil.Process(server.process.pid).children()[0].pid
            threads = [int(task.name) for task in Path(f"/proc/{worker}/task").iterdir()]
            policies = {thread: os.sched_getscheduler(thread) for thread in threads}
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    assert policies.pop(worker) == os.SCHED_BATCH
    assert len(policies) >= 2, "a lane, and a thread of ONNX Runtime"
    assert set(policies.values()) == {usual}


@pytest.mark.parametrize("call", ["sched_getscheduler", "sched_setscheduler"])
def test_a_machine_that_forbids_scheduling_policies_is_served_on(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> int:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, call, refuse)
    step_back()
    monkeypatch.undo()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.parametrize("cores", [1, 2])
def test_on_one_core_the_lane_takes_long_turns_and_lets_the_event_loop_through(bundle: Path, cores: int) -> None:
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < cores:
        pytest.skip(f"{cores} cores are needed")
    with pinned(tuple(usable[:cores])), running(bundle, "--threads", "1") as started:
        with ThreadPoolExecutor(16) as clients:
            words = [WORDS[number % len(WORDS)] for number in range(400)]
            answers = list(clients.map(lambda word: httpx.post(f"{started.url}/predict", json={"inputs": word}), words))
        worker = psutil.Process(started.process.pid).children()[0].pid
        slices = {slice_of(int(task.name)) for task in Path(f"/proc/{worker}/task").iterdir()}
    assert {answer.status_code for answer in answers} == {200}
    for word in set(words):
        assert len({answer.text for answer, asked in zip(answers, words, strict=True) if asked == word}) == 1
    if 0 in slices:
        pytest.skip("this kernel does not tell a thread's slice")
    assert (SLICE_S in slices) is (cores == 1)


def test_every_batch_size_is_warm_before_the_model_is_served(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(ServeSettings(bundle=bundle, threads=1))
    runs: Counter[int] = Counter()
    compute = Engine.compute

    def noted(engine: Engine, texts: Sequence[str]) -> int:
        assert not repository.loaded()
        runs[len(texts)] += 1
        return compute(engine, texts)

    async def load() -> None:
        await repository.load()
        assert repository.loaded()
        await repository.close()

    monkeypatch.setattr(Engine, "compute", noted)
    asyncio.run(load())
    assert sorted(runs) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert min(runs.values()) > LEAST_ROUNDS
