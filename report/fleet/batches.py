"""What a replica's batches cost in time, fitted to the traces of load tests.

The lane (tokenizer and model) shares its core with the event loop, which takes requests in and hands answers out while
a batch runs. So a batch's seconds are

    fixed + per_token x tokens + per_text x texts + per_arrival x arrivals + per_answer x answers:

its own work, the requests that came in while it ran, and the answers of the batch before, where that one ended just
then. They are fitted by non-negative least squares with an error relative to the fitted time. What was seen beyond the
fit (another process, the hypervisor, caches that a large batch overflows) is kept as it was, by size of batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import optimize

from report.fleet.trace import Batch, Floats, Ints, Trace
from testbed.errors import UserError

MIN_BATCHES = 30
REWEIGHTINGS = 6
LEAST_S = 1e-6
# A query that waited for so long when a batch began, and is not in it, was left behind: the batch was full. One that
# came later than that may have come after the batch was chosen.
LEFT_BEHIND_S = 0.002
MIN_FULL = 8
MIN_OF_SIZE = 8


@dataclass(frozen=True)
class BatchModel:
    """What one replica does with its queue. What is to be replayed stands in the order in which it was seen.

    Attributes:
        fixed_s, per_token_s, per_text_s: seconds of a batch's own work.
        per_arrival_s, per_answer_s: that the event loop takes from a running batch.
        gaps_s: between two batches when queries wait, to replay.
        wakes_s: from the arrival of a query at an idle lane to the begin of its batch, to replay.
        in_s: from sending to waiting, to replay.
        out_fixed_s, out_per_text_s: from a batch's end to the client, by the texts of the batch.
        outs_s: observed minus fitted way out, to replay.
        extras_s: observed minus fitted batch seconds, to replay; by size class of batch (1, 2, 3-4, 5-8, ... texts).
        extras_at_s: when each of them was seen, on its trace's clock.
        max_texts: of the largest batch that was seen.
        max_tokens: of a batch, as the full ones show it.
        tokens: token counts of real queries, to draw from.
        num_batches: that the fit rests on.
    """

    fixed_s: float
    per_token_s: float
    per_text_s: float
    per_arrival_s: float
    per_answer_s: float
    gaps_s: Floats
    wakes_s: Floats
    in_s: Floats
    out_fixed_s: float
    out_per_text_s: float
    outs_s: Floats
    extras_s: tuple[Floats, ...]
    extras_at_s: tuple[Floats, ...]
    max_texts: int
    max_tokens: int
    tokens: Ints
    num_batches: int

    def seconds(self, tokens: float, texts: float) -> float:
        """Return the fitted seconds of a batch's own work."""
        return self.fixed_s + self.per_token_s * tokens + self.per_text_s * texts

    def seconds_per_query(self) -> float:
        """Return what a query of the largest batch takes of the lane, all told: no more than its inverse is carried."""
        mean_tokens = float(self.tokens.mean())
        texts = max(1.0, min(float(self.max_texts), self.max_tokens / mean_tokens))
        batch_s = self.seconds(texts * mean_tokens, texts) + float(self.extras_s[-1].mean() + self.gaps_s.mean())
        return batch_s / texts + self.per_arrival_s + self.per_answer_s


def fit(traces: Sequence[Trace]) -> BatchModel:
    """Fit the model to the batches of several load tests of one variant on one profile.

    Raises:
        UserError: fewer than 30 batches.
    """
    batches = [batch for trace in traces for batch in trace.batches]
    if len(batches) < MIN_BATCHES:
        msg = f"only {len(batches)} batches were seen, {MIN_BATCHES} are needed; help: run longer load tests"
        raise UserError(msg)
    weights, extras_s = _batch_times(traces)
    pairs = [pair for trace in traces for pair in pairwise(trace.batches)]
    texts = np.asarray([batch.texts for batch in batches])
    ways_out = np.asarray([batch.out_s for batch in batches])
    out = _fit_relative(
        np.stack([np.ones(len(texts)), texts], axis=1).astype(np.float64), np.maximum(ways_out, LEAST_S)
    )
    return BatchModel(
        fixed_s=float(weights[0]),
        per_token_s=float(weights[1]),
        per_text_s=float(weights[2]),
        per_arrival_s=float(weights[3]),
        per_answer_s=float(weights[4]),
        gaps_s=_gaps_s(pairs),
        wakes_s=_wakes_s(pairs),
        in_s=np.concatenate([trace.in_s for trace in traces]),
        out_fixed_s=float(out[0]),
        out_per_text_s=float(out[1]),
        outs_s=np.concatenate([trace.out_s - out[0] - out[1] * trace.mates for trace in traces]),
        extras_s=_by_size(extras_s, texts),
        extras_at_s=_by_size(np.asarray([batch.begin_s for batch in batches]), texts),
        max_texts=int(texts.max()),
        max_tokens=_budget(batches, pairs),
        tokens=np.concatenate([trace.tokens for trace in traces]),
        num_batches=len(batches),
    )


def _batch_times(traces: Sequence[Trace]) -> tuple[Floats, Floats]:
    """Return the five weights, and observed minus fitted seconds of each batch.

    Arrivals are counted over the time that a batch of this size should have taken, not over the time that it took:
    else a batch that was disturbed, during which more came, would make the arrivals look like the cause.
    """
    own = np.asarray([[1.0, batch.tokens, batch.texts] for trace in traces for batch in trace.batches])
    seconds = np.asarray([batch.seconds for trace in traces for batch in trace.batches])
    answers = np.concatenate([_answers(trace.batches) for trace in traces])
    fitted_s = own @ _fit_relative(own, seconds)
    begins = np.cumsum([0, *(len(trace.batches) for trace in traces)])
    arrivals = np.concatenate(
        [_arrivals(trace, fitted_s[begin:end]) for trace, (begin, end) in zip(traces, pairwise(begins), strict=True)]
    )
    design = np.column_stack([own, arrivals, answers])
    weights = _fit_relative(design, seconds)
    return weights, seconds - design @ weights


def size_class(texts: int) -> int:
    """Return 0 for one text, 1 for two, 2 for three and four, 3 for five to eight, and so on."""
    return (texts - 1).bit_length()


def _by_size(values: Floats, texts: Ints) -> tuple[Floats, ...]:
    """Return the values of each size class of batch, in order.

    A class with too few batches takes those of the next smaller one in.
    """
    classes = np.asarray([size_class(int(each)) for each in texts])
    found: list[Floats] = []
    for each in range(int(classes.max()) + 1):
        lowest = each
        while lowest and ((classes >= lowest) & (classes <= each)).sum() < MIN_OF_SIZE:
            lowest -= 1
        chosen = values[(classes >= lowest) & (classes <= each)]
        found.append(chosen if len(chosen) else np.zeros(1))
    return tuple(found)


def _arrivals(trace: Trace, seconds: Floats) -> Floats:
    """Return how many queries came within so many seconds of each batch's begin."""
    begin_s = np.asarray([batch.begin_s for batch in trace.batches])
    return (np.searchsorted(trace.sent_s, begin_s + seconds) - np.searchsorted(trace.sent_s, begin_s)).astype(
        np.float64
    )


def _answers(batches: Sequence[Batch]) -> Floats:
    """Return how many answers of the batch before each one were handed out while it ran."""
    back_to_back = [before.texts if after.first_arrived_s < before.end_s else 0 for before, after in pairwise(batches)]
    return np.asarray([0, *back_to_back], dtype=np.float64)


def _fit_relative(design: Floats, seconds: Floats) -> Floats:
    """Return non-negative weights that fit with an error relative to the fitted value.

    Dividing by the observed value instead would pull the fit down: a batch that happened to be quick would count more.
    """
    fitted = seconds
    for _ in range(REWEIGHTINGS):
        weights, _ = optimize.nnls(design / fitted[:, None], seconds / fitted)
        fitted = np.maximum(design @ weights, LEAST_S)
    return weights


def _budget(batches: Sequence[Batch], pairs: Sequence[tuple[Batch, Batch]]) -> int:
    """Return how many tokens a batch may hold.

    The server weighs texts before it tokenizes them, so its own budget is in other units. But a batch that left the
    next text waiting held less than the budget, and with that text would have held more: the median of the middle
    between the two is taken. Where hardly a batch was ever full, it is the largest one.
    """
    largest = max(batch.tokens for batch in batches)
    full = [
        before.tokens + after.first_tokens / 2
        for before, after in pairs
        if after.first_arrived_s < before.begin_s - LEFT_BEHIND_S
    ]
    # A batch that is cut short for its oldest query's deadline is no measure of the budget.
    full = [tokens for tokens in full if tokens > largest / 2]
    return round(float(np.median(full))) if len(full) >= MIN_FULL else largest


def _gaps_s(pairs: Sequence[tuple[Batch, Batch]]) -> Floats:
    """Return the times between a batch and the next one, where one of its queries waited when it ended.

    Single differences carry the jitter of the network, both ways, and none may be below zero: they are scaled so that
    their mean stays what it was.
    """
    seen = [after.begin_s - before.end_s for before, after in pairs if after.first_arrived_s < before.end_s]
    gaps = np.maximum(seen or [0.0], 0.0)
    return gaps * max(0.0, float(np.mean(seen))) / gaps.mean() if gaps.any() else gaps


def _wakes_s(pairs: Sequence[tuple[Batch, Batch]]) -> Floats:
    """Return how long an idle lane took from a query's arrival to its batch; a single 0 where that was never seen."""
    wakes = [after.begin_s - after.first_arrived_s for before, after in pairs if after.first_arrived_s >= before.end_s]
    return np.asarray(wakes or [0.0])
