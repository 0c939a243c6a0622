"""A model that is loaded, verified and warm: what requests are submitted to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from serve import instruments
from serve.backlog import Backlog
from serve.card import Card
from serve.errors import DeadlineAtRisk, InvalidRequest, Shed
from serve.estimate import TokenEstimate
from serve.jobs import Job
from serve.lane import Lane
from serve.protocols.codec import Ask
from serve.tally import Tally

logger = logging.getLogger(__name__)

# Of the time that a request allows, what it may spend until its batch is done; the rest is for the ways in and out,
# which the server does not see whole: under three times its load they take up to 15 of 50 ms.
SHARE_BEFORE_ANSWER = 0.7
# Of the running mean of admitted requests' tokens, what the newest one counts for.
NEWEST_SHARE = 0.05
# After a refusal, for so long every request is judged before it is parsed.
PRESSED_S = 1.0


class Model:
    """Takes asks, gives jobs.

    Args:
        card: what it says of itself.
        backlog: where its jobs wait.
        lane: serves them; started here.
        estimate: weighs texts.
        vocab_size: ids sent by clients lie below it.
        slo_s: deadline of an ask that names none.
        tally: counts.

    Attributes:
        in_flight: requests that were admitted and are not answered.
    """

    def __init__(
        self,
        *,
        card: Card,
        backlog: Backlog,
        lane: Lane,
        estimate: TokenEstimate,
        vocab_size: int,
        slo_s: float,
        tally: Tally,
    ) -> None:
        self.card = card
        self.lane = lane
        self.tally = tally
        self.in_flight = 0
        self._backlog = backlog
        self._estimate = estimate
        self._vocab_size = vocab_size
        self._slo_s = slo_s
        self._pressed_until_s = 0.0
        self._usual_weight = 0.0
        proof = card.proof
        instruments.model_info.labels(
            card.name, card.version, card.variant.name, proof.precision, card.profile, card.policy
        ).set(1)
        lane.start()

    def submit(self, ask: Ask, *, arrived_s: float, on_over: Callable[[], None]) -> Job:
        """Let an ask wait for its turn; call it on the event loop, on which ``on_over`` is called when it has an end.

        Raises:
            InvalidRequest: token ids that the model does not have.
            Shed: no room, or no time.
        """
        job = Job(
            texts=ask.texts,
            ids=ask.ids,
            weights=self._weights(ask),
            num_labels=len(self.card.labels),
            arrived_s=arrived_s,
            deadline_s=arrived_s + (ask.timeout_s or self._slo_s) * SHARE_BEFORE_ANSWER,
            urgent=ask.urgent,
            on_over=on_over,
        )
        try:
            weight = self._backlog.put(job)
        except Shed:
            self._pressed_until_s = arrived_s + PRESSED_S
            raise
        self._usual_weight += (weight - self._usual_weight) * NEWEST_SHARE
        return job

    def refusal(self, body_bytes: int, *, arrived_s: float) -> Shed | None:
        """Return why a request that nobody has parsed yet would be refused, or None: it may be in time.

        It is taken to weigh what requests lately weighed, or what its body can hold where that is less, and to have the
        server's own deadline. Without a refusal of late none is to be expected, and nothing is worked out.
        """
        if arrived_s > self._pressed_until_s:
            return None
        weight = min(self._usual_weight, self._estimate.most(body_bytes))
        refused = self._backlog.refusal(rows=1, weight=weight, deadline_s=arrived_s + self._slo_s * SHARE_BEFORE_ANSWER)
        if refused is not None:
            self._pressed_until_s = arrived_s + PRESSED_S
        return refused

    def queue(self) -> tuple[int, int]:
        """Return rows and tokens that wait."""
        return self._backlog.rows, self._backlog.tokens

    def note_levels(self) -> None:
        """Bring the gauges up to date."""
        self.tally.waiting_tokens.set(self._backlog.tokens)
        self.tally.in_flight.set(self.in_flight)
        self.tally.drift.set(self._backlog.curve.drift)

    def is_dead(self) -> bool:
        """Return whether the lane has ended though nobody closed the backlog."""
        return not self.lane.is_alive() and not self._backlog.is_closed

    async def close(self, reason: str) -> None:
        """Refuse what comes from now on, and return when what waits has been served."""
        self._backlog.close(reason)
        await asyncio.to_thread(self.lane.join)

    def stuck_s(self) -> float:
        """Return for how long the running batch has been running; 0 while idle."""
        since_s = self.lane.busy_since_s
        return time.monotonic() - since_s if since_s else 0.0

    def _weights(self, ask: Ask) -> list[int]:
        if ask.texts is not None:
            return [self._estimate.of(text) for text in ask.texts]
        assert ask.ids is not None
        for number, row in enumerate(ask.ids):
            self._check_ids(number, row)
        return [len(row) for row in ask.ids]

    def _check_ids(self, number: int, row: Sequence[int]) -> None:
        if len(row) > self.card.max_length:
            msg = f"row {number} of input_ids has {len(row)} tokens, the model takes {self.card.max_length}"
            raise InvalidRequest(msg)
        if min(row) < 0 or max(row) >= self._vocab_size:
            msg = f"row {number} of input_ids holds ids outside 0…{self._vocab_size - 1}"
            raise InvalidRequest(msg)


def expire(job: Job, refused: Shed, loop: asyncio.AbstractEventLoop) -> None:
    """Answer, from the lane's thread, a job that waited past its deadline."""
    assert isinstance(refused, DeadlineAtRisk)
    loop.call_soon_threadsafe(job.fail, refused)
