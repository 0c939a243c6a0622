"""The thread that tokenizes and runs the batches: the event loop never waits for it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

import numpy as np

from serve.backend import probabilities
from serve.backlog import Backlog
from serve.engine import Engine
from serve.errors import BackendFailed, NonFiniteOutput, OutOfMemory, ServeError
from serve.estimate import TokenEstimate
from serve.jobs import BatchTimes, Floats, Row
from serve.tally import Tally
from serve.turns import take_long_slices

logger = logging.getLogger(__name__)

# An event loop that takes longer is busy with something else.
MOST_PATIENCE_S = 0.05


class Lane(threading.Thread):
    """Takes batches off a backlog until it is closed and drained.

    Args:
        backlog: where the batches come from.
        engine: tokenizes and runs them.
        estimate: is told how many tokens the texts had.
        loop: the event loop on which the jobs get their results.
        tally: counts what was run.
        shares_core: with the event loop, which is let through after each batch.

    Attributes:
        busy_since_s: monotonic time at which the running batch began; 0 while idle.
    """

    def __init__(
        self,
        *,
        backlog: Backlog,
        engine: Engine,
        estimate: TokenEstimate,
        loop: asyncio.AbstractEventLoop,
        tally: Tally,
        shares_core: bool,
    ) -> None:
        super().__init__(name="lane", daemon=True)
        self.busy_since_s = 0.0
        self._backlog = backlog
        self._engine = engine
        self._estimate = estimate
        self._loop = loop
        self._tally = tally
        self._shares_core = shares_core
        self._caught_up = threading.Event()

    def run(self) -> None:
        """Serve batches; ends with the backlog."""
        if self._shares_core:
            take_long_slices()
        while rows := self._backlog.take():
            self.busy_since_s = time.monotonic()
            self._serve(rows)
            self.busy_since_s = 0.0

    def _serve(self, rows: list[Row]) -> None:
        """Run a batch and hand back its rows. One that fails is run again text by text: only the guilty one suffers."""
        try:
            self._run(rows)
        except Exception as error:
            # Whatever a batch does (out of memory included), the lane goes on with the next one.
            logger.exception("a batch failed", extra={"figures": {"texts": len(rows)}})
            failure = failure_of(error)
            if isinstance(failure, OutOfMemory):
                self._give_memory_back()
            if len(rows) == 1:
                self._loop.call_soon_threadsafe(rows[0].job.fail, failure)
            else:
                for row in rows:
                    self._serve([row])

    def _give_memory_back(self) -> None:
        """What a batch took before it found no more would be wanting everywhere else: the arena keeps what it has."""
        try:
            self._engine.give_memory_back()
        except Exception:
            logger.exception("no memory was given back")

    def _run(self, rows: list[Row]) -> None:
        begin_s = time.monotonic()
        ids = self._token_ids(rows)
        tokenized_s = time.monotonic()
        feed = self._engine.feed(ids)
        built_s = time.monotonic()
        logits = self._engine.run(feed)
        done_s = time.monotonic()
        times = batch_times(begin_s, tokenized_s, built_s, done_s)
        self._loop.call_soon_threadsafe(self._deliver, rows, logits, probabilities(logits), times)
        if self._shares_core:
            self._let_through()
        tokens, computed = sum(map(len, ids)), feed["input_ids"].size
        self._tally.batch(texts=len(rows), tokens=tokens, computed=computed, compute_s=done_s - built_s)
        # Until now, with the waits for the interpreter's lock: what the next batch has to wait for, too.
        self._backlog.curve.observe(computed, time.monotonic() - begin_s)

    def _let_through(self) -> None:
        """Wait until the event loop has answered this batch, and read what came meanwhile.

        On one core it has to run at some time. Here it interrupts nothing, and the next batch is all that there is.
        """
        self._caught_up.clear()
        self._loop.call_soon_threadsafe(self._loop.call_soon, self._caught_up.set)
        self._caught_up.wait(MOST_PATIENCE_S)

    def _deliver(self, rows: list[Row], logits: Floats, chances: Floats, times: BatchTimes) -> None:
        """Hand the results to their jobs, on the event loop; a row that is not finite fails alone."""
        labels: list[int] = logits.argmax(axis=1).tolist()
        finite, requests, texts = bool(np.isfinite(logits).all()), 0, 0
        for number, row in enumerate(rows):
            job, own = row.job, slice(number, number + 1)
            if not finite and not np.isfinite(logits[own]).all():
                job.fail(NonFiniteOutput("the model returned NaN or infinity; help: serve another precision"))
                continue
            job.batch = times
            if job.fill(row.index, logits[own], chances[own], labels[number]):
                requests, texts = requests + 1, texts + len(job.labels)
        self._tally.batch_answered(times, requests=requests, texts=texts)

    def _token_ids(self, rows: Sequence[Row]) -> list[Sequence[int]]:
        found: list[Sequence[int]] = []
        texts = [row.job.texts[row.index] for row in rows if row.job.texts is not None]
        tokenized = self._engine.tokenizer.encode_batch(texts) if texts else []
        self._estimate.learn(texts, tokenized)
        encoded = iter(tokenized)
        for row in rows:
            sent = row.job.ids
            found.append(next(encoded) if sent is None else sent[row.index])
        return found


def failure_of(error: Exception) -> ServeError:
    """Return what the client is told: a want of memory may pass, whatever else ONNX Runtime raises will not."""
    # ONNX Runtime has no class for it: its allocators say "Failed to allocate memory", the C++ library "bad_alloc".
    if isinstance(error, MemoryError) or any(words in str(error) for words in ("allocate memory", "bad_alloc")):
        return OutOfMemory("there was no memory for this text; help: send a shorter one, or try again later")
    return BackendFailed(f"the model failed: {type(error).__name__}")


def batch_times(begin_s: float, tokenized_s: float, built_s: float, done_s: float) -> BatchTimes:
    """Return the parts of a batch by the times at which they ended."""
    tokenize_s, batch_s, compute_s = tokenized_s - begin_s, built_s - tokenized_s, done_s - built_s
    timing = b"tokenize;dur=%.3f, batch;dur=%.3f, compute;dur=%.3f" % (tokenize_s * 1e3, batch_s * 1e3, compute_s * 1e3)
    return BatchTimes(begin_s, tokenize_s, batch_s, compute_s, timing)
