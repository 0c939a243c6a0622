"""The gpu profile on a real GPU: it runs there, proves it, and answers what the CPU answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import numpy as np
import onnxruntime as ort
import pytest

from serve.backend import SHAPE_OPERATORS
from testbed.machine import gpus
from tests.served import running

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU on this machine"),
    pytest.mark.skipif("CUDAExecutionProvider" not in ort.get_available_providers(), reason="needs onnxruntime-gpu"),
]

TEXTS = ["what is the name of a big cat", "seven horse", "paris was near here when we saw it"]


def ask(url: str) -> np.ndarray:
    tensor = {"name": "text", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}
    answer = httpx.post(
        f"{url}/v2/models/tiny/infer", json={"inputs": [tensor], "outputs": [{"name": "logits"}]}, timeout=60
    )
    return np.array(answer.raise_for_status().json()["outputs"][0]["data"])


@pytest.mark.parametrize("variant", ["student-fp32", "student-fp16"])
def test_gpu_answers_like_the_cpu_and_proves_where_it_ran(tiny_bundle: Path, variant: str) -> None:
    with running(tiny_bundle, "--variant", "student-fp32", "--profile", "cpu") as server:
        expected = ask(server.url)
    with running(tiny_bundle, "--variant", variant, "--profile", "gpu") as server:
        np.testing.assert_allclose(ask(server.url), expected, atol=1e-3 if variant == "student-fp32" else 0.05)
        proof = httpx.get(f"{server.url}/v2/models/tiny").json()["proof"]
        kept = server.events("shape arithmetic stays on the CPU")
    assert proof["providers"]["CUDAExecutionProvider"] > 0
    assert "CPUExecutionProvider" not in proof["providers"] or SHAPE_OPERATORS.issuperset(kept[0]["operators"])


def test_gpu_serves_many_at_once(tiny_bundle: Path) -> None:
    async def flood(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            answers = await asyncio.gather(*(client.post("/predict", json={"inputs": TEXTS}) for _ in range(200)))
            return [answer.status_code for answer in answers]

    with running(tiny_bundle, "--variant", "student-fp16", "--profile", "gpu", "--slo-ms", "10000") as server:
        assert set(asyncio.run(flood(server.url))) == {200}
