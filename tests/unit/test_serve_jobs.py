"""A job ends once, whoever ends it, and is then held by nobody; what its batch shares is counted for each request."""

from __future__ import annotations

import gc
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.samples import Sample

from serve.errors import BackendFailed, ClientLeft
from serve.exchange import Exchange
from serve.instruments import SECONDS, SharedHistogram
from serve.jobs import Job
from serve.protocols.huggingface import HuggingFace
from serve.routes import Target


class Waiting:
    """Somebody who waits for a job and holds it, as an exchange does."""

    def __init__(self, rows: int) -> None:
        self.told = 0
        self.job = Job(
            texts=["x"] * rows,
            ids=None,
            weights=[1] * rows,
            num_labels=2,
            arrived_s=0.0,
            deadline_s=1.0,
            urgent=False,
            on_over=self.tell,
        )

    def tell(self) -> None:
        self.told += 1


def fill(job: Job, row: int, value: float) -> bool:
    return job.fill(row, np.full((1, 2), value, np.float32), np.full((1, 2), value, np.float32), label=row)


def test_a_job_is_over_with_its_last_row() -> None:
    waiting = Waiting(rows=3)
    assert [fill(waiting.job, row, row) for row in (2, 0, 1)] == [False, False, True]
    assert waiting.told == 1
    assert waiting.job.labels == [0, 1, 2]
    assert waiting.job.logits.tolist() == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("error", [ClientLeft(), BackendFailed("no")])
def test_the_first_end_counts(error: ClientLeft | BackendFailed) -> None:
    failed, answered = Waiting(rows=1), Waiting(rows=1)
    failed.job.fail(error)
    assert not fill(failed.job, 0, 1.0)
    assert fill(answered.job, 0, 1.0)
    answered.job.fail(error)
    assert (failed.told, failed.job.error) == (1, error)
    assert (answered.told, answered.job.error) == (1, None)


def test_who_waited_is_freed_without_the_collector() -> None:
    gc.disable()
    try:
        waiting = Waiting(rows=1)
        seen = weakref.ref(waiting)
        fill(waiting.job, 0, 1.0)
        del waiting
        assert seen() is None
    finally:
        gc.enable()


def test_one_value_counted_for_several_requests_is_as_if_each_had_it() -> None:
    def samples(histogram: Histogram) -> list[Sample]:
        return [sample for sample in next(iter(histogram.collect())).samples if not sample.name.endswith("_created")]

    shared = SharedHistogram("a", "a", buckets=SECONDS, registry=CollectorRegistry())
    usual = Histogram("a", "a", buckets=SECONDS, registry=CollectorRegistry())
    for value, times in ((0.0, 1), (0.001, 4), (0.0011, 1), (3.0, 0), (5.0, 2), (99.0, 3)):
        shared.add(value, times=times)
        for _ in range(times):
            usual.observe(value)
    assert [sample[:2] for sample in samples(shared)] == [sample[:2] for sample in samples(usual)]
    assert [sample.value for sample in samples(shared)] == pytest.approx([sample.value for sample in samples(usual)])


def test_an_answer_that_cannot_even_be_refused_costs_no_other_request_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def head(*_arguments: object, **_options: object) -> bytes:
        raise MemoryError

    connection = Mock()
    connection.parser.get_http_version.return_value = "1.1"
    exchange = Exchange(connection, Target(HuggingFace(), "words"), {})
    exchange._model = connection.model
    connection.model.in_flight = 1
    monkeypatch.setattr(connection.desk.heads, "head", head)
    exchange._finish()
    connection.transport.abort.assert_called_once_with()
    assert exchange.response_complete
