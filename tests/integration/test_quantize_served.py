"""The served path against the offline FP32 model: a real server process, real co-batching."""

from pathlib import Path

import numpy as np
import pytest

from quantize.verify_served import Answers, _judge, verify_served
from testbed.bundle import Bundle
from testbed.dataset import read_split
from testbed.errors import UserError
from tests.served import running

pytestmark = pytest.mark.integration


def test_clients_get_what_was_verified(tiny_bundle: Path, tiny_dataset: Path) -> None:
    with running(tiny_bundle, "--variant", "student-int8") as server:
        record = verify_served(tiny_bundle, url=server.url, dataset=tiny_dataset, concurrency=16)
    variant = Bundle(tiny_bundle).manifest.variant("student-int8")
    assert record.variant == "student-int8"
    assert record.file_sha256 in variant.files.values()
    assert record.num_texts == len(read_split(tiny_dataset, "test").texts)
    assert record.errors == {}
    assert record.mean_batch_texts is not None
    assert record.mean_batch_texts > 1
    assert record.max_logit_difference is not None
    # Packed and co-batched, an answer may differ from the text alone by what the manifest says, and a little float32.
    change = variant.verification.batch_max_logit_change
    assert change is not None
    assert record.max_logit_difference <= variant.verification.max_logit_difference + change + 1e-4
    assert record.accuracy_difference == pytest.approx(variant.verification.accuracy_difference, abs=0.02)


def test_a_query_without_an_answer_is_a_wrong_one() -> None:
    expected = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    logits = expected.copy()
    logits[2] = np.nan
    figures = _judge(Answers(logits, {"http_503": 1}, None), expected, labels=[0, 1, 2, 0])
    assert figures["accuracy"].value == 0.75
    assert figures["offline_accuracy"].value == 1
    assert figures["accuracy_difference"] == -0.25
    assert figures["agreement"] == 0.75
    assert figures["max_logit_difference"] == 0
    low, high = figures["bootstrap_interval"].low, figures["bootstrap_interval"].high
    assert low <= -0.25 <= high


def test_no_server(tiny_bundle: Path, tiny_dataset: Path) -> None:
    with pytest.raises(UserError, match="no Open Inference Protocol server answers"):
        verify_served(tiny_bundle, url="http://127.0.0.1:9", dataset=tiny_dataset)
