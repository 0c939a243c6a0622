"""Single-thread speed of a model's variants, interleaved in one run, in the thread's CPU time.

With one intra-op thread ONNX Runtime computes on the calling thread, so its CPU time is the whole work, and other
processes on the same cores cannot lengthen it much.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from quantize.session import Rows, Runner, cut
from testbed.metrics import mean_interval
from testbed.records import Speed

TEXTS_A_ROUND = 32
PACKED_TEXTS = 8
Seconds = dict[str, list[float]]


def interleave(runners: Mapping[str, Runner], rows: Rows, *, rounds: int, size: int) -> Seconds:
    """Return CPU seconds a text of each runner, one figure a round.

    Every round takes the same texts through every runner, in an order that rotates; a first round warms up and does
    not count.

    Args:
        runners: by name.
        rows: token ids at the real length mix; each round takes the next ``TEXTS_A_ROUND``, from the start again.
        rounds: that count.
        size: texts a batch.
    """
    seconds: Seconds = {name: [] for name in runners}
    names = list(runners)
    for number in range(rounds + 1):
        begin = number * TEXTS_A_ROUND
        some = [rows[index % len(rows)] for index in range(begin, begin + TEXTS_A_ROUND)]
        pieces = list(cut(some, size))
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            runner = runners[name]
            started_s = time.thread_time()
            for piece in pieces:
                runner.run(piece)
            if number:
                seconds[name].append((time.thread_time() - started_s) / len(some))
    return seconds


def speeds(
    alone: Mapping[str, Runner], packed: Mapping[str, Runner], rows: Rows, *, reference: str, rounds: int
) -> dict[str, Speed]:
    """Return each variant's speed, and its ratio to ``reference`` with an interval over the rounds.

    Args:
        alone: the padded layouts by variant, run one text at a time.
        packed: the packed layouts of those that have one, run by ``PACKED_TEXTS`` texts.
        rows: token ids at the real length mix.
        reference: the FP32 variant.
        rounds: that count.
    """
    seconds = interleave(alone, rows, rounds=rounds, size=1)
    packed_seconds = interleave(packed, rows, rounds=rounds, size=PACKED_TEXTS) if packed else {}
    return {name: _speed(name, seconds, packed_seconds, reference) for name in alone}


def _speed(name: str, seconds: Seconds, packed_seconds: Seconds, reference: str) -> Speed:
    ratios = (np.array(seconds[reference]) / np.array(seconds[name])).tolist()
    own_packed, base = packed_seconds.get(name), packed_seconds.get(reference)
    return Speed(
        texts_per_s=float(1 / np.median(seconds[name])),
        ratio_to_fp32=float(np.mean(ratios)),
        ratio_interval=mean_interval(ratios),
        packed_texts_per_s=float(1 / np.median(own_packed)) if own_packed else None,
        packed_ratio_to_fp32=float(np.mean(np.array(base) / np.array(own_packed))) if base and own_packed else None,
    )
