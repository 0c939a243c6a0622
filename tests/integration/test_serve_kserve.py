"""KServe's own client, in an environment of its own: its dependencies do not go together with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import LABELS, ROOT, expected_logits, running, write_bundle

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

ENVIRONMENT = ROOT / ".cache" / "kserve-0.21"
TEXTS = ["cat", "what is seven"]
CLIENT = """
import asyncio, json, sys
from kserve import InferInput, InferRequest, InferenceRESTClient, RESTConfig

async def ask(url, texts):
    v2 = InferenceRESTClient(RESTConfig(protocol="v2"))
    ready = await v2.is_server_ready(url), await v2.is_model_ready(url, "words")
    tensor = InferInput("text", [len(texts)], "BYTES")
    tensor.data = texts
    answer = await v2.infer(url, InferRequest("words", [tensor]), model_name="words")
    v1 = InferenceRESTClient(RESTConfig(protocol="v1"))
    old = await v1.infer(url, {"instances": texts}, model_name="words")
    print(json.dumps({
        "ready": ready,
        "v2": {output.name: output.data for output in answer.outputs},
        "v1": [prediction["label"] for prediction in old["predictions"]],
    }))

asyncio.run(ask(sys.argv[1], sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    found = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        subprocess.run([found, "-m", "pip", "install", "--quiet", "kserve==0.21.0"], check=True)
        (ENVIRONMENT / "done").touch()
    return found


def test_kserves_client_gets_the_right_answers(python: Path, tmp_path: Path) -> None:

    bundle = write_bundle(tmp_path / "words")
    labels = [LABELS[index] for index in expected_logits(TEXTS, bundle).argmax(axis=1)]
    with running(bundle, "--threads", "1") as server:
        done = subprocess.run(
            [python, "-c", CLIENT, server.url, *TEXTS], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["ready"] == [True, True]
    assert answer["v2"]["label"] == labels
    assert answer["v1"] == labels
