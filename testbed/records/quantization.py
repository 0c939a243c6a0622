"""The records of quantization beside the bundle: what a search tried, and what clients get over HTTP."""

from __future__ import annotations

from typing import Literal

from testbed.records.base import Accuracy, Frozen, Interval, Record, Sha256, Usage


class Sensitivity(Frozen):
    """One product group quantized by itself, all others in FP32.

    Attributes:
        group: its place in the graph.
        products: names of its products.
        mean_logit_change: mean absolute change of a logit on dev texts.
        max_logit_change: the largest.
    """

    group: int
    products: tuple[str, ...]
    mean_logit_change: float
    max_logit_change: float


class Trial(Frozen):
    """One candidate of a search, judged on the dev split.

    Attributes:
        method: how it was quantized.
        kept: product groups that stayed FP32.
        accuracy_difference: minus the FP32 parent's, on the same rows.
        difference_lower_bound: one-sided 95 % bound of it.
        agreement: share of rows with the parent's label.
        max_logit_difference: from the parent.
        batch_flip_rate: share of labels that batch-mates change.
        batch_max_logit_change: largest change of a logit by them.
        ratio_to_fp32: single-thread speed at batch 1, interleaved with the parent.
        ratio_interval: of that ratio.
        keeps_floor: accuracy and invariance are within the experiment's bounds.
        usage: what making and judging it used.
    """

    method: str
    kept: tuple[int, ...]
    accuracy_difference: float
    difference_lower_bound: float
    agreement: float
    max_logit_difference: float
    batch_flip_rate: float
    batch_max_logit_change: float
    ratio_to_fp32: float
    ratio_interval: Interval
    keeps_floor: bool
    usage: Usage


class QuantizationSearch(Record):
    """The search for the fastest INT8 form of one model that keeps the floor.

    Attributes:
        model: ``teacher`` or ``student``.
        num_groups: product groups of the model.
        sensitivities: by method, of those whose first trial broke the floor; worst first.
        trials: every candidate, in order.
        chosen: index of the trial that was taken, or None where none keeps the floor.
        reason: why that one, or why none.
        usage: of the whole search.
    """

    kind: Literal["QuantizationSearch"] = "QuantizationSearch"
    model: Literal["teacher", "student"]
    num_groups: int
    sensitivities: dict[str, tuple[Sensitivity, ...]]
    trials: tuple[Trial, ...]
    chosen: int | None
    reason: str
    usage: Usage


class ServedVerification(Record):
    """The test split through HTTP with real co-batching, against the offline FP32 logits of the same rows.

    Attributes:
        url: of the server.
        variant: that it says it serves.
        file_sha256: of the ONNX file that it says it loaded.
        concurrency: queries in flight.
        num_texts: texts that were sent, each as one query.
        errors: kind to count; a query without an answer counts as wrong.
        mean_batch_texts: texts a batch, from the server's own counters, or None where it has none.
        accuracy: of the answers.
        offline_accuracy: of the FP32 model, each text alone.
        accuracy_difference: served minus offline, paired.
        difference_interval: of it (Agresti-Min).
        bootstrap_interval: of it, by resampling rows.
        mcnemar_p: two-sided exact p-value of gains against losses.
        agreement: share of answers with the offline FP32 label.
        max_logit_difference: from the offline FP32 logits.
    """

    kind: Literal["ServedVerification"] = "ServedVerification"
    url: str
    variant: str
    file_sha256: Sha256 | None
    concurrency: int
    num_texts: int
    errors: dict[str, int]
    mean_batch_texts: float | None
    accuracy: Accuracy
    offline_accuracy: Accuracy
    accuracy_difference: float
    difference_interval: Interval
    bootstrap_interval: Interval
    mcnemar_p: float
    agreement: float
    max_logit_difference: float | None
