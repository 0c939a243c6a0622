"""Ranges of a product's left factor, seen on training texts: the static scale that INT8 then lives with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from quantize.graph import save_graph
from quantize.products import product_groups
from quantize.session import Padded, Rows, open_session
from testbed.errors import UserError

Calibration = Literal["minmax", "percentile", "entropy"]
Values = NDArray[np.float32]

PERCENTILE = 99.99
HISTOGRAM_BINS = 2048
QUANTIZED_BINS = 128
SMOOTHING = 1e-4
# Candidate thresholds of the entropy search, as shares of the largest value.
CANDIDATES = np.linspace(0.2, 1.0, 33)


class Range(NamedTuple):
    """The lowest and highest value that a quantized factor can still say; what is beyond is clipped."""

    low: float
    high: float


class Calibrated(NamedTuple):
    """What a calibration found.

    Attributes:
        ranges: one for each product group, in the graph's order.
        method: how a range was chosen from the values.
        sha256: of the texts' token ids, in order: another set gives other ranges.
        num_texts: training texts that were seen.
    """

    ranges: tuple[Range, ...]
    method: Calibration
    sha256: str
    num_texts: int


def calibrate(model: onnx.ModelProto, rows: Rows, *, pad_token_id: int, method: Calibration) -> Calibrated:
    """Return the range of every product group's left factor over real tokens.

    Each text runs alone, so no padding is seen: padded rows take values that no answer depends on.

    Args:
        model: the padded FP32 graph.
        rows: token ids of training texts.
        pad_token_id: of the model.
        method: ``minmax`` keeps everything, ``percentile`` clips one value in ten thousand, ``entropy`` takes the
            threshold whose quantized histogram is nearest to the real one (Migacz 2017).

    Raises:
        UserError: no calibration text.
    """
    if not rows:
        msg = "no calibration text; help: static INT8 needs a training split with at least one row"
        raise UserError(msg)
    choose: dict[Calibration, Callable[[Values], Range]] = {
        "minmax": _minmax,
        "percentile": _percentile,
        "entropy": entropy_range,
    }
    values = _left_factors(model, rows, pad_token_id)
    digest = hashlib.sha256(repr([list(row) for row in rows]).encode()).hexdigest()
    return Calibrated(tuple(choose[method](factor) for factor in values), method, digest, len(rows))


def _left_factors(model: onnx.ModelProto, rows: Rows, pad_token_id: int) -> list[Values]:
    """Return the values of every group's left factor over all texts, flattened."""
    sources = [group.source for group in product_groups(model)]
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(source) for source in sources)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "watched.onnx"
        save_graph(watched, path, external_from_bytes=2**30)
        runner = Padded(open_session(path), pad_token_id=pad_token_id)
        seen: list[Sequence[Values]] = [runner.session.run(sources, runner.feed([row])) for row in rows]
    return [np.concatenate([factors[place].ravel() for factors in seen]) for place in range(len(sources))]


def _minmax(values: Values) -> Range:
    return Range(float(values.min()), float(values.max()))


def _percentile(values: Values) -> Range:
    low, high = np.percentile(values, [100 - PERCENTILE, PERCENTILE])
    return Range(float(low), float(high))


def entropy_range(values: Values) -> Range:
    """Return the symmetric threshold with the least Kullback-Leibler divergence, cut at the real extremes."""
    largest = float(np.abs(values).max())
    counts, edges = np.histogram(np.abs(values), bins=HISTOGRAM_BINS, range=(0, largest))
    divergences = [_divergence(counts, int(HISTOGRAM_BINS * share)) for share in CANDIDATES]
    threshold = float(edges[int(HISTOGRAM_BINS * CANDIDATES[int(np.argmin(divergences))])])
    return Range(max(-threshold, float(values.min())), min(threshold, float(values.max())))


def _divergence(counts: NDArray[np.int64], num_kept: int) -> float:
    """Return how far the first bins, quantized to ``QUANTIZED_BINS`` with the rest clipped in, are from themselves."""
    kept = counts[:num_kept].astype(np.float64)
    clipped = kept.copy()
    clipped[-1] += counts[num_kept:].sum()
    quantized = np.empty(num_kept)
    for piece in np.array_split(np.arange(num_kept), QUANTIZED_BINS):
        filled = kept[piece] > 0
        quantized[piece] = np.where(filled, kept[piece].sum() / max(1, filled.sum()), 0)
    support = clipped > 0
    real = clipped[support] / clipped.sum()
    # Where clipped values alone fill the last bin, the quantized histogram has nothing: infinitely far, so both are
    # given a little everywhere, and the distance stays one between two distributions on the same bins.
    approximate = (1 - SMOOTHING) * quantized[support] / kept.sum() + SMOOTHING / support.sum()
    return float((real * np.log(real / approximate)).sum())
