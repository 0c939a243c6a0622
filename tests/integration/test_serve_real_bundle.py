"""A bundle as `quantize` makes it, served: the answers through HTTP, alone and among others, are the verified ones."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from subprocess import run

import httpx
import numpy as np
import onnxruntime as ort
import pytest

from serve import layouts
from testbed.bundle import Bundle
from tests.served import ROOT, running

pytestmark = pytest.mark.integration


def own_logits(bundle: Bundle, variant_name: str, texts: list[str]) -> np.ndarray:
    """The padded graph's logits, each text alone, straight from ONNX Runtime."""
    variant = bundle.manifest.variant(variant_name)
    session, tokenizer = ort.InferenceSession(bundle.model_file(variant)), bundle.tokenizer()
    rows = []
    for text in texts:
        feed = layouts.padded(
            [tokenizer.encode(text)], inputs=variant.inputs, pad_token_id=bundle.manifest.pad_token_id
        )
        rows.append(session.run(["logits"], feed)[0][0])
    return np.array(rows)


async def ask_all(url: str, texts: list[str], *, at_once: bool) -> np.ndarray:
    """The logits of each text, one request a text, sent together or one by one."""

    async def ask(client: httpx.AsyncClient, text: str) -> list[float]:
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}
        body = {"inputs": [tensor], "outputs": [{"name": "logits"}]}
        answer = await client.post("/v2/models/tiny/infer", json=body)
        return answer.raise_for_status().json()["outputs"][0]["data"]

    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        if at_once:
            return np.array(await asyncio.gather(*(ask(client, text) for text in texts)))
        return np.array([await ask(client, text) for text in texts])


@pytest.mark.parametrize("policy", ["packed", "sorted", "fixed", "none"])
def test_every_policy_answers_what_was_verified(tiny_bundle: Path, tiny_dataset: Path, policy: str) -> None:
    lines = (tiny_dataset / "test.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines][:48]
    expected = own_logits(Bundle(tiny_bundle), "student-fp32", texts)
    with running(tiny_bundle, "--variant", "student-fp32", "--policy", policy, "--threads", "1") as server:
        np.testing.assert_allclose(asyncio.run(ask_all(server.url, texts, at_once=True)), expected, atol=1e-4)
        np.testing.assert_allclose(asyncio.run(ask_all(server.url, texts[:4], at_once=False)), expected[:4], atol=1e-4)
        metrics = httpx.get(f"{server.url}/metrics").text
    batches = float(metrics.split('breakeven_batches_total{model="tiny"} ')[1].split("\n")[0])
    assert batches == 52 if policy == "none" else batches < 52


def test_int8_keeps_to_its_own_tolerance(tiny_bundle: Path, tiny_dataset: Path) -> None:
    lines = (tiny_dataset / "test.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines][:48]
    variant = Bundle(tiny_bundle).manifest.variant("student-int8")
    expected = own_logits(Bundle(tiny_bundle), "student-int8", texts)
    with running(tiny_bundle, "--variant", "student-int8", "--threads", "1") as server:
        found = asyncio.run(ask_all(server.url, texts, at_once=True))
        assert httpx.get(f"{server.url}/v2/models/tiny").json()["proof"]["precision"] == "int8"
    allowed = variant.verification.batch_max_logit_change
    assert allowed is not None
    assert np.abs(found - expected).max() <= 2 * allowed + 1e-3


def test_the_server_needs_no_training_framework(tiny_bundle: Path) -> None:
    """Not only does nothing import them by name: once it serves, none of them is in the process."""
    with running(tiny_bundle, "--variant", "student-int8", "--threads", "1") as server:
        assert httpx.post(f"{server.url}/predict", json={"inputs": "what is the name"}).status_code == 200
        worker = server.events("model warm")[0]["pid"]
        loaded = Path(f"/proc/{worker}/maps").read_text(encoding="utf-8")
    for package in ("/torch/", "/transformers/", "/scipy/"):
        assert package not in loaded
    heavy = "{'onnxruntime', 'fastapi', 'torch'}"
    command = f"import serve.__main__, sys; sys.exit(len({heavy} & set(sys.modules)))"
    assert run([sys.executable, "-c", command], cwd=ROOT, check=False).returncode == 0
