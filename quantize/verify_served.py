"""The test split through HTTP with real co-batching: the accuracy that is reported is the one that clients get."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from quantize.session import Logits, Padded, open_session, run_in_batches
from testbed.bundle import Bundle
from testbed.dataset import read_record, read_split
from testbed.errors import UserError
from testbed.machine import provenance
from testbed.metrics import accuracy, agreement, mcnemar_p, paired_difference
from testbed.records import Interval, Variant, file_sha256
from testbed.records.quantization import ServedVerification

TIMEOUT_S = 30.0
DRAWS = 10_000
LEVEL = 0.95


class Served(NamedTuple):
    """What a server says that it serves."""

    variant: str
    file_sha256: str | None


class Answers(NamedTuple):
    """Logits by row, NaN where a query had no answer; kinds of error to their count; texts a batch."""

    logits: Logits
    errors: dict[str, int]
    mean_batch_texts: float | None


def verify_served(bundle: Path, *, url: str, dataset: Path, concurrency: int = 32, seed: int = 0) -> ServedVerification:
    """Send every test text as one query, many at once, and compare the answers with the offline FP32 model's.

    Args:
        bundle: that the server has loaded; its FP32 variant of the same model is the reference.
        url: of the server, such as ``http://127.0.0.1:8080``.
        dataset: the prepared data set that the bundle was verified on.
        concurrency: queries in flight, so that the server can batch them.
        seed: shuffles the texts, so that batch-mates are chance.

    Raises:
        UserError: no server there, another model than the bundle's, another data set, or no FP32 variant.
    """
    opened = Bundle(bundle)
    manifest = opened.manifest
    test = read_split(dataset, "test")
    if read_record(dataset).labels != manifest.labels:
        msg = f"{dataset}: its labels are not the bundle's; help: name the data set of this bundle's experiment"
        raise UserError(msg)
    served = _ask_what_is_served(url, manifest.name)
    expected = _offline_logits(opened, manifest.variant(served.variant), test.texts)
    order = np.random.default_rng(seed).permutation(len(test.texts)).tolist()
    answers = asyncio.run(_send_all(url, manifest.name, test.texts, order, concurrency, len(manifest.labels)))
    settings: dict[str, JsonValue] = {"url": url, "concurrency": concurrency, "seed": seed}
    parents = {"bundle": file_sha256(bundle / "manifest.json"), "dataset": file_sha256(dataset / "record.json")}
    return ServedVerification(
        **provenance(settings, parents),
        url=url,
        variant=served.variant,
        file_sha256=served.file_sha256,
        concurrency=concurrency,
        **_judge(answers, expected, test.labels),
    )


def _judge(answers: Answers, expected: Logits, labels: Sequence[int]) -> dict[str, Any]:
    """Return the record's figures; a query without an answer is a wrong one."""
    truth = np.asarray(labels, dtype=np.int64)
    answered = np.isfinite(answers.logits).all(axis=1)
    own = np.where(answered, np.nan_to_num(answers.logits, nan=-np.inf).argmax(axis=1), -1)
    offline = expected.argmax(axis=1)
    right, offline_right = own == truth, offline == truth
    difference, interval = paired_difference(right, offline_right)
    changes = np.abs(answers.logits[answered] - expected[answered])
    return {
        "num_texts": len(truth),
        "errors": answers.errors,
        "mean_batch_texts": answers.mean_batch_texts,
        "accuracy": accuracy(own, truth),
        "offline_accuracy": accuracy(offline, truth),
        "accuracy_difference": difference,
        "difference_interval": interval,
        "bootstrap_interval": _bootstrap(right, offline_right),
        "mcnemar_p": mcnemar_p(right, offline_right),
        "agreement": agreement(own, offline),
        "max_logit_difference": float(changes.max()) if changes.size else None,
    }


def _bootstrap(right: NDArray[np.bool_], other_right: NDArray[np.bool_]) -> Interval:
    """Return the percentile interval of the paired difference over resampled rows."""
    gains = right.astype(np.int64) - other_right.astype(np.int64)
    picks = np.random.default_rng(0).integers(0, len(gains), size=(DRAWS, len(gains)))
    low, high = np.quantile(gains[picks].mean(axis=1), [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return Interval(low=float(low), high=float(high), level=LEVEL, method="bootstrap")


def _offline_logits(bundle: Bundle, variant: Variant, texts: Sequence[str]) -> Logits:
    names = {one.name for one in bundle.manifest.variants}
    name = f"{variant.model}-fp32"
    if name not in names:
        msg = f"{bundle.folder}: holds no {name}, the reference; help: name it in the experiment's variants"
        raise UserError(msg)
    reference = bundle.manifest.variant(name)
    runner = Padded(open_session(bundle.model_file(reference)), pad_token_id=bundle.pad_token_id(reference))
    return run_in_batches(runner, bundle.tokenizer(reference).encode_batch(texts), size=1)


def _ask_what_is_served(url: str, model: str) -> Served:
    try:
        response = httpx.get(f"{url}/v2/models/{model}", timeout=TIMEOUT_S)
        document = response.json()
    except (httpx.HTTPError, ValueError) as error:
        msg = f"{url}: no Open Inference Protocol server answers ({error}); help: start one with `breakeven serve`"
        raise UserError(msg) from error
    variant = document.get("parameters", {}).get("variant") if response.is_success else None
    if variant is None:
        msg = f"{url}: serves no model {model!r} of ours (status {response.status_code}); help: serve this bundle there"
        raise UserError(msg)
    return Served(variant, document.get("proof", {}).get("file_sha256"))


async def _send_all(
    url: str, model: str, texts: Sequence[str], order: Sequence[int], concurrency: int, num_labels: int
) -> Answers:
    """Keep ``concurrency`` queries in flight until every text was sent once."""
    logits = np.full((len(texts), num_labels), np.nan, dtype=np.float32)
    errors: Counter[str] = Counter()
    waiting = iter(order)
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as client:

        async def client_loop() -> None:
            for index in waiting:
                found = await _query(client, model, texts[index])
                if isinstance(found, str):
                    errors[found] += 1
                else:
                    logits[index] = found

        before = await _batch_counters(client)
        await asyncio.gather(*(client_loop() for _ in range(concurrency)))
        after = await _batch_counters(client)
    batches = after.get("count", 0) - before.get("count", 0)
    mean = (after["sum"] - before.get("sum", 0)) / batches if batches else None
    return Answers(logits, dict(errors), mean)


async def _query(client: httpx.AsyncClient, model: str, text: str) -> list[float] | str:
    """Return the logits of one text, or the kind of error."""
    body = {
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}],
        "outputs": [{"name": "logits"}],
    }
    try:
        response = await client.post(f"/v2/models/{model}/infer", json=body)
        if not response.is_success:
            return f"http_{response.status_code}"
        outputs: Mapping[str, Any] = {output["name"]: output for output in response.json()["outputs"]}
        return [float(value) for value in outputs["logits"]["data"]]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return type(error).__name__


async def _batch_counters(client: httpx.AsyncClient) -> dict[str, float]:
    """Return texts (``sum``) and batches (``count``) so far, from the server's metrics; empty where it has none."""
    try:
        lines = (await client.get("/metrics")).text.splitlines()
    except httpx.HTTPError:
        return {}
    found: dict[str, float] = {}
    for line in lines:
        for part in ("sum", "count"):
            if line.startswith(f"breakeven_batch_texts_{part}"):
                found[part] = found.get(part, 0) + float(line.rpartition(" ")[2])
    return found
