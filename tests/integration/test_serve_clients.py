"""Real clients against a real server process."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from huggingface_hub import InferenceClient
from tritonclient.http import aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.served import LABELS, Running, expected_logits, running, write_bundle

pytestmark = pytest.mark.integration

TEXTS = ["the name of a big dog", "what is paris", "seven", "one old horse is the name of lima"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "words")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Running]:
    with running(bundle, "--threads", "1", "--access-log") as started:
        yield started


def text_input(texts: list[str], shape: list[int] | None = None) -> triton.InferInput:
    data = np.array(texts, dtype=object).reshape(shape or [len(texts)])
    found = triton.InferInput("text", list(data.shape), "BYTES")
    found.set_data_from_numpy(data, binary_data=True)
    return found


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("shape", [[4], [4, 1]])
def test_tritonclient_infers(
    server: Running, bundle: Path, binary_in: bool, binary_out: bool, shape: list[int]
) -> None:
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    sent = triton.InferInput("text", shape, "BYTES")
    sent.set_data_from_numpy(np.array(TEXTS, dtype=object).reshape(shape), binary_data=binary_in)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("logits", "label")]
    answer = client.infer("words", [sent], outputs=outputs, request_id="mine")
    np.testing.assert_allclose(answer.as_numpy("logits"), expected_logits(TEXTS, bundle), atol=1e-5)
    labels = [label.decode() if isinstance(label, bytes) else label for label in answer.as_numpy("label")]
    assert labels == [LABELS[i] for i in expected_logits(TEXTS, bundle).argmax(axis=1)]
    assert answer.get_response()["id"] == "mine"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_compresses_both_ways(server: Running, bundle: Path, algorithm: str) -> None:
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    texts = TEXTS * 100
    answer = client.infer(
        "words",
        [text_input(texts)],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    np.testing.assert_allclose(answer.as_numpy("logits"), expected_logits(texts, bundle), atol=1e-5)


def test_tritonclient_asks_for_everything_else(server: Running, bundle: Path) -> None:
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("words")
    assert client.is_model_ready("words", "1")
    assert client.get_server_metadata()["name"] == "breakeven"
    assert client.get_model_metadata("words", "1")["outputs"][1]["shape"] == [-1, len(LABELS)]
    assert client.get_model_config("words")["name"] == "words"
    before = client.get_inference_statistics("words")["model_stats"][0]
    client.infer("words", [text_input(TEXTS)], model_version="1")
    after = client.get_inference_statistics("words")["model_stats"][0]
    assert after["inference_count"] - before["inference_count"] == len(TEXTS)
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 1
    assert {"name": "words", "version": "1", "state": "READY", "reason": ""} in client.get_model_repository_index()
    with pytest.raises(InferenceServerException, match="no model 'other'"):
        client.infer("other", [text_input(TEXTS)])
    with pytest.raises(InferenceServerException, match="text 0 is empty"):
        client.infer("words", [text_input([""])])


def test_tritonclient_sends_token_ids_and_gets_classes(server: Running, bundle: Path) -> None:
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    by_text = client.infer("words", [text_input(["cat", "dog horse"])]).as_numpy("logits")
    ids = np.array([[2, 8, 3, 0], [2, 9, 10, 3]], dtype=np.int64)
    tensors = []
    for name, values in (("input_ids", ids), ("attention_mask", (ids != 0).astype(np.int64))):
        tensors.append(triton.InferInput(name, [2, 4], "INT64"))
        tensors[-1].set_data_from_numpy(values)
    outputs = [triton.InferRequestedOutput("logits"), triton.InferRequestedOutput("probabilities", class_count=2)]
    answer = client.infer("words", tensors, outputs=outputs)
    np.testing.assert_allclose(answer.as_numpy("logits"), by_text, atol=1e-6)
    classes = answer.as_numpy("probabilities")
    assert classes.shape == (2, 2)
    value, index, label = classes[0][0].decode().split(":")
    assert label == LABELS[int(index)] == LABELS[by_text[0].argmax()]
    assert 1 / len(LABELS) < float(value) <= 1


def test_a_whole_number_may_have_a_point(server: Running) -> None:
    def classes(count: object) -> httpx.Response:
        wanted = {"name": "probabilities", "parameters": {"classification": count}}
        tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["cat"]}
        return httpx.post(f"{server.url}/v2/models/words/infer", json={"inputs": [tensor], "outputs": [wanted]})

    assert classes(2.0).json()["outputs"] == classes(2).json()["outputs"]
    for wrong in (2.5, -1.0, "2", True):
        assert classes(wrong).status_code == 400


def test_tritonclient_aio_infers(server: Running, bundle: Path) -> None:
    async def ask() -> np.ndarray:
        async with triton_aio.InferenceServerClient(server.url.removeprefix("http://")) as client:
            sent = [text_input([text]) for text in TEXTS]
            answers = await asyncio.gather(*(client.infer("words", [one]) for one in sent))
            return np.concatenate([answer.as_numpy("logits") for answer in answers])

    np.testing.assert_allclose(asyncio.run(ask()), expected_logits(TEXTS, bundle), atol=1e-5)


@pytest.mark.parametrize("path", ["/", "/predict"])
def test_huggingface_client_classifies(server: Running, bundle: Path, path: str) -> None:
    client = InferenceClient(model=server.url + path)
    found = client.text_classification(TEXTS[0])
    logits = expected_logits(TEXTS[:1], bundle)[0]
    chances = np.exp(logits) / np.exp(logits).sum()
    assert [element.label for element in found] == [LABELS[i] for i in np.argsort(-chances)]
    np.testing.assert_allclose([element.score for element in found], np.sort(chances)[::-1], atol=1e-5)
    assert len(client.text_classification(TEXTS[0], top_k=2)) == 2
    raw = client.text_classification(TEXTS[0], top_k=1, function_to_apply="none")
    assert raw[0].score == pytest.approx(float(logits.max()), abs=1e-5)


def test_kserve_v1_predicts(server: Running, bundle: Path) -> None:
    answer = httpx.post(f"{server.url}/v1/models/words:predict", json={"instances": [TEXTS[0], {"text": TEXTS[1]}]})
    best = expected_logits(TEXTS[:2], bundle).argmax(axis=1)
    assert [one["label"] for one in answer.json()["predictions"]] == [LABELS[i] for i in best]


def test_plain_http_sees_where_time_went_and_what_ran(server: Running) -> None:
    with httpx.Client(base_url=server.url) as client:
        answer = client.post(
            "/predict", json={"inputs": TEXTS}, headers={"x-request-id": "r-1", "x-breakeven-proof": "1"}
        )
        assert len(answer.json()) == len(TEXTS)
        parts = dict(part.strip().split(";dur=") for part in answer.headers["server-timing"].split(","))
        named = ("queue", "tokenize", "batch", "compute", "serialise")
        assert set(parts) == {*named, "total"}
        assert sum(float(parts[name]) for name in named) <= float(parts["total"])
        assert answer.headers["x-request-id"] == "r-1"
        assert answer.headers["x-breakeven-providers"].startswith("CPUExecutionProvider=")
        proof = client.get("/v2/models/words").json()["proof"]
        assert proof["file_sha256"] == answer.headers["x-breakeven-sha256"]
        assert proof["threads"] == 1
        assert client.get("/v2").headers["server-timing"].startswith("total;dur=")
        assert "<textarea" in client.get("/", headers={"accept": "text/html"}).text
        assert client.get("/").json() == {"status": "alive"}
        assert client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]["required"]
    logged = [record for record in server.events("request") if record["request_id"] == "r-1"]
    assert logged[0]["status"] == 200
    assert TEXTS[0] not in "".join(server.lines)


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (b"{", {}, 400, "not JSON"),
        (b"[]", {}, 400, "an object is needed"),
        (b'{"inputs": ["cat", 7]}', {}, 400, "text 1 is a int"),
        (b'{"inputs": "  "}', {}, 400, "text 0 is empty"),
        (b'{"inputs": []}', {}, 400, "no text"),
        (b'{"inputs": "cat", "parameters": {"top_k": 0}}', {}, 400, "top_k"),
        (b'{"inputs": "cat"}', {"content-encoding": "br"}, 415, "gzip"),
        (b"nothing zipped", {"content-encoding": "gzip"}, 400, "not gzip"),
        (gzip.compress(b" " * 2**23), {"content-encoding": "gzip"}, 413, "bytes"),
        (zlib.compress(b'{"inputs": "cat"}'), {"content-encoding": "deflate"}, 200, "label"),
        (b'{"inputs": "cat"}', {"x-breakeven-timeout-ms": "soon"}, 400, "Timeout"),
        (b'{"inputs": "' + b"x" * 70_000 + b'"}', {}, 413, "bytes"),
        (b'{"inputs": [' + b'"cat",' * 1024 + b'"cat"]}', {}, 413, "rows"),
    ],
)
def test_bad_bodies_get_one_form_of_error(
    server: Running, body: bytes, headers: dict[str, str], status: int, said: str
) -> None:
    answer = httpx.post(f"{server.url}/predict", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert said in answer.text
    if status != 200:
        assert set(answer.json()) == {"error", "reason"}
    assert "server-timing" in answer.headers


@pytest.mark.parametrize(
    ("shape", "outputs", "said"),
    [
        ([1, True], [], "shape"),
        ([0, 2**62], [], "shape"),
        ([0, 2**63], [], "shape"),
        (
            [1, 1],
            [{"name": "logits"}, {"name": "label"}, {"name": "logits", "parameters": {"classification": 1}}],
            "twice",
        ),
    ],
)
def test_tensors_that_cannot_be_are_the_clients_fault(
    server: Running, shape: list[int], outputs: list[object], said: str
) -> None:
    tensor = {"name": "input_ids", "datatype": "INT64", "shape": shape, "data": [3] * shape[0]}
    answer = httpx.post(f"{server.url}/v2/models/words/infer", json={"inputs": [tensor], "outputs": outputs})
    assert (answer.status_code, answer.json()["reason"]) == (400, "invalid_request")
    assert said in answer.text


def test_unknown_paths_and_methods_get_the_same_form(server: Running) -> None:
    assert httpx.get(f"{server.url}/nowhere").json()["reason"] == "not_found"
    assert httpx.delete(f"{server.url}/v2").json()["reason"] == "method_not_allowed"
    assert httpx.get(f"{server.url}/v2/models/words/versions/9").json()["reason"] == "not_found"


def test_one_broken_text_fails_alone(server: Running) -> None:
    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url) as client:
            # While the slow one runs the others wait, and then share a batch.
            slow = asyncio.create_task(client.post("/predict", json={"inputs": "slowword"}))
            await asyncio.sleep(0.02)
            texts = ["cat", "brokenword dog", "paris"]
            return [
                *await asyncio.gather(*(client.post("/predict", json={"inputs": text}) for text in texts)),
                await slow,
            ]

    statuses = [answer.status_code for answer in asyncio.run(ask())]
    assert statuses == [200, 500, 200, 200]
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'breakeven_errors_total{model="words",reason="non_finite_output"} 1.0' in metrics
