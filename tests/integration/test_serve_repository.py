"""Several models and versions at once; a new version takes over without a lost request, a broken one is refused."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.served import Running, expected_logits, running, write_bundle

pytestmark = pytest.mark.integration

TEXT = "the name of a big old dog"


def logits(server: Running, model: str, version: str | None = None) -> httpx.Response:
    place = f"/versions/{version}" if version else ""
    body = {
        "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [TEXT]}],
        "outputs": [{"name": "logits"}],
    }
    return httpx.post(f"{server.url}/v2/models/{model}{place}/infer", json=body, timeout=20)


def assert_answers_like(server: Running, bundle: Path, *, model: str = "words", version: str, seed: int) -> None:
    answer = logits(server, model).json()
    assert answer["model_version"] == version
    np.testing.assert_allclose(answer["outputs"][0]["data"], expected_logits([TEXT], bundle, seed=seed)[0], atol=1e-5)


def test_a_new_version_takes_over_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "models" / "v1")
    with running(first, "--repository", str(tmp_path / "models"), "--threads", "1") as server:
        seen: Counter[str] = Counter()
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                answer = logits(server, "words")
                seen[answer.json().get("model_version", answer.text) if answer.is_success else answer.text] += 1

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for asker in askers:
            asker.start()
        second = write_bundle(tmp_path / "new", version=2, seed=7)
        second.rename(tmp_path / "models" / "v2")
        assert httpx.post(f"{server.url}/v2/repository/models/words/load", timeout=30).json()["version"] == "2"
        give_up_s = time.monotonic() + 20
        while not seen["2"] and time.monotonic() < give_up_s:
            pass
        over.set()
        for asker in askers:
            asker.join(20)
        assert set(seen) == {"1", "2"}, seen
        assert_answers_like(server, first, version="2", seed=7)
        assert logits(server, "words", "1").status_code == 404


def test_a_broken_version_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "models" / "v1")
    with running(first, "--repository", str(tmp_path / "models"), "--threads", "1") as server:
        broken = write_bundle(tmp_path / "models" / "v2", version=2, seed=7)
        graph = broken / "variants" / "student-fp32.packed.onnx"
        graph.write_bytes(graph.read_bytes()[:-100])
        refused = httpx.post(f"{server.url}/v2/repository/models/words/load", timeout=30)
        assert refused.status_code == 400
        assert "damaged or changed" in refused.json()["error"]
        assert str(tmp_path) not in refused.text
        assert_answers_like(server, first, version="1", seed=0)


def test_two_models_and_unloading(tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "models" / "words")
    other = write_bundle(tmp_path / "models" / "others", name="others", seed=3)
    with running(first, "--repository", str(tmp_path / "models"), "--threads", "1") as server:
        index = httpx.post(f"{server.url}/v2/repository/index").json()
        assert {(row["name"], row["state"]) for row in index} == {("words", "READY"), ("others", "UNAVAILABLE")}
        assert logits(server, "others").status_code == 404
        assert httpx.post(f"{server.url}/v2/repository/models/others/load", timeout=30).is_success
        assert_answers_like(server, other, model="others", version="1", seed=3)
        assert_answers_like(server, first, version="1", seed=0)
        page = {"Origin": "https://elsewhere.example"}
        refused = httpx.post(f"{server.url}/v2/repository/models/others/unload", headers=page)
        assert (refused.status_code, refused.json()["reason"]) == (403, "foreign_origin")
        own = {"Origin": server.url}
        assert httpx.post(f"{server.url}/v2/repository/models/others/unload", headers=own, timeout=30).is_success
        assert logits(server, "others").status_code == 404
        for name in ("never", "..", "%2e%2e%2fwords", "words%00"):
            assert httpx.post(f"{server.url}/v2/repository/models/{name}/load").status_code in {404, 405}


def test_every_worker_follows_a_change(tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "models" / "v1")
    with running(first, "--repository", str(tmp_path / "models"), "--threads", "1", "--workers", "2") as server:
        shutil.copytree(write_bundle(tmp_path / "new", version=2, seed=7), tmp_path / "models" / "v2")
        assert httpx.post(f"{server.url}/v2/repository/models/words/load", timeout=60).is_success
        answers = Counter(logits(server, "words").json()["model_version"] for _ in range(30))
        assert answers == {"2": 30}
        assert {record["pid"] for record in server.events("model retired")} == {
            record["pid"] for record in server.events("model warm")
        }
