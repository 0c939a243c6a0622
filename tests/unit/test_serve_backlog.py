"""Admission, order and deadlines of the queue, without a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from serve.backlog import Backlog
from serve.curve import BatchCurve, Sample
from serve.errors import ClientLeft, DeadlineAtRisk, QueueFull, ServeError, TooLarge, Unavailable
from serve.jobs import Job
from serve.policies import InOrder

MS = 1e-3


@pytest.fixture
def job() -> Callable[..., Job]:
    def make(*weights: int, within_s: float = 10.0, urgent: bool = False) -> Job:
        now_s = time.monotonic()
        return Job(
            texts=["x"] * len(weights),
            ids=None,
            weights=weights,
            num_labels=2,
            arrived_s=now_s,
            deadline_s=now_s + within_s,
            urgent=urgent,
            on_over=lambda: None,
        )

    return make


def backlog(
    *,
    budget: int = 64,
    max_texts: int = 8,
    delay_s: float = 0.0,
    queue: int = 1000,
    expired: list[Job] | None = None,
    slowness: float = 1,
) -> Backlog:
    """A queue whose batches take 1 ms and 0.1 ms a token."""
    curve = BatchCurve([Sample(tokens=n, texts=1, seconds=(1 + n * 0.1) * MS * slowness) for n in (10, 100, 1000)])

    def note(job: Job, error: ServeError) -> None:
        job.fail(error)
        if expired is not None:
            expired.append(job)

    return Backlog(
        policy=InOrder(packed=True, max_texts=max_texts, max_tokens=budget, delay_s=delay_s),
        curve=curve,
        max_tokens=queue,
        on_expired=note,
    )


def test_a_batch_is_filled_in_order_up_to_the_budget(job: Callable[..., Job]) -> None:
    queue, jobs = backlog(), [job(30), job(30), job(30)]
    for one in jobs:
        queue.put(one)
    assert [row.job for row in queue.take()] == jobs[:2]
    assert (queue.rows, queue.tokens) == (1, 30)
    assert [row.job for row in queue.take()] == jobs[2:]


def test_rows_of_one_request_may_fall_into_several_batches(job: Callable[..., Job]) -> None:
    queue, one = backlog(max_texts=2), job(1, 1, 1)
    queue.put(one)
    assert [row.index for row in queue.take()] == [0, 1]
    assert [row.index for row in queue.take()] == [2]


def test_a_request_heavier_than_the_queue_is_refused_for_good(job: Callable[..., Job]) -> None:
    with pytest.raises(TooLarge, match="1001 tokens"):
        backlog().put(job(1001))


def test_a_full_queue_says_when_to_come_back(job: Callable[..., Job]) -> None:
    queue = backlog()
    queue.put(job(990))
    with pytest.raises(QueueFull) as refused:
        queue.put(job(20))
    assert refused.value.retry_after_s == 1
    assert queue.rows == 1


def test_what_cannot_be_in_time_is_refused_at_once(job: Callable[..., Job]) -> None:
    queue = backlog()
    for _ in range(9):
        queue.put(job(100))
    # 900 tokens wait: 0.09 s and the batches' fixed part; 0.05 s are not enough for one more, 1 s is.
    with pytest.raises(DeadlineAtRisk):
        queue.put(job(10, within_s=0.05))
    queue.put(job(10, within_s=1.0))


def test_what_nobody_has_parsed_yet_is_judged_as_put_judges_it(job: Callable[..., Job]) -> None:
    queue = backlog()
    for _ in range(9):
        queue.put(job(100))
    now_s = time.monotonic()
    assert isinstance(queue.refusal(rows=1, weight=10, deadline_s=now_s + 0.05), DeadlineAtRisk)
    assert isinstance(queue.refusal(rows=1, weight=101, deadline_s=now_s + 5), QueueFull)
    assert queue.refusal(rows=1, weight=10, deadline_s=now_s + 5) is None
    queue.close("draining")
    assert isinstance(queue.refusal(rows=1, weight=10, deadline_s=now_s + 5), Unavailable)
    assert queue.rows == 9


def test_a_departed_clients_rows_never_reach_a_batch(job: Callable[..., Job]) -> None:
    queue, first, gone, last = backlog(), job(1), job(1), job(1)
    for one in (first, gone, last):
        queue.put(one)
    gone.fail(ClientLeft())
    assert [row.job for row in queue.take()] == [first, last]
    assert (queue.rows, queue.tokens) == (0, 0)


def test_what_waited_too_long_is_told_so_instead_of_being_run(job: Callable[..., Job]) -> None:
    expired: list[Job] = []
    queue, late = backlog(expired=expired), job(1, within_s=0.02)
    queue.put(late)
    patient = job(1)
    queue.put(patient)
    time.sleep(0.03)
    assert [row.job for row in queue.take()] == [patient]
    assert expired == [late]
    assert isinstance(late.error, DeadlineAtRisk)


def test_patient_rows_in_the_way_refuse_no_urgent_one(job: Callable[..., Job]) -> None:
    queue = backlog(queue=1000)
    for _ in range(8):
        queue.put(job(100))
    queue.put(job(100, urgent=True, within_s=0.05))  # 11 ms alone; behind the patient ones it would be 90 ms
    with pytest.raises(DeadlineAtRisk):
        queue.put(job(100, within_s=0.05))
    for _ in range(9):
        queue.put(job(100, urgent=True))
    with pytest.raises(QueueFull):
        queue.put(job(100, urgent=True))


def test_urgent_rows_go_first_and_leave_a_quarter_to_the_others(job: Callable[..., Job]) -> None:
    queue = backlog(budget=1000, max_texts=8)
    for urgent in (False, True):
        for _ in range(20):
            queue.put(job(1, urgent=urgent))
    assert [row.job.urgent for row in queue.take()] == [True] * 6 + [False] * 2


@pytest.mark.parametrize(("max_texts", "urgent"), [(1, 1), (8, 60)])
def test_where_a_batch_has_no_room_for_both_the_patient_ones_get_every_fourth(
    job: Callable[..., Job], max_texts: int, urgent: int
) -> None:
    queue = backlog(budget=64, max_texts=max_texts)
    for _ in range(9):
        queue.put(job(urgent, urgent=True))
    for _ in range(2):
        queue.put(job(40))
    taken = [queue.take() for _ in range(8)]
    assert [[row.job.urgent for row in rows] for rows in taken] == [*[[True]] * 3, [False]] * 2


def test_a_closed_queue_serves_what_waits_and_then_ends(job: Callable[..., Job]) -> None:
    queue, waiting = backlog(), job(1)
    queue.put(waiting)
    queue.close("draining")
    with pytest.raises(Unavailable) as refused:
        queue.put(job(1))
    assert refused.value.reason == "draining"
    assert [row.job for row in queue.take()] == [waiting]
    assert queue.take() == []


def test_a_lone_request_is_not_kept_waiting(job: Callable[..., Job]) -> None:
    queue = backlog()
    taken: list[float] = []
    taking = threading.Thread(target=lambda: queue.take() and taken.append(time.monotonic()))
    taking.start()
    begin_s = time.monotonic()
    queue.put(job(1))
    taking.join(5)
    assert taken[0] - begin_s < 0.05


def test_the_fixed_policy_waits_for_company_only_so_long(job: Callable[..., Job]) -> None:
    queue = backlog(max_texts=2, delay_s=0.05)
    begin_s = time.monotonic()
    queue.put(job(1))
    assert len(queue.take()) == 1
    assert time.monotonic() - begin_s >= 0.05
    begin_s = time.monotonic()
    queue.put(job(1))
    queue.put(job(1))
    assert len(queue.take()) == 2
    assert time.monotonic() - begin_s < 0.05


def test_drift_makes_admission_follow_the_speed_that_is_seen(job: Callable[..., Job]) -> None:
    queue = backlog()
    queue.put(job(100, within_s=0.03))
    for _ in range(200):
        queue.curve.observe(100, 10 * queue.curve.fixed_s + 1000 * queue.curve.per_token_s)
    with pytest.raises(DeadlineAtRisk):
        queue.put(job(100, within_s=0.03))


def test_a_batch_is_cut_short_for_its_oldest_rows_but_not_below_a_half(job: Callable[..., Job]) -> None:
    queue = backlog(budget=60, max_texts=100, slowness=1000)
    queue.put(job(1, within_s=4.5))  # 1 s and 0.1 s a token: 35 tokens would just be in time
    for _ in range(99):
        queue.put(job(1, within_s=60))
    assert 30 <= len(queue.take()) <= 35
    queue = backlog(budget=60, max_texts=100, slowness=1000)
    queue.put(job(1, within_s=1.6))
    for _ in range(99):
        queue.put(job(1, within_s=60))
    assert len(queue.take()) == 30


def test_a_slow_moment_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = BatchCurve([Sample(tokens=n, texts=1, seconds=0.001 * n) for n in (10, 100)])
    for _ in range(100):
        curve.observe(10, 1.0)
    assert curve.drift > 4
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 5)
    assert curve.drift < 1.1
    assert curve.tokens_within(0.02) in {18, 19, 20}
