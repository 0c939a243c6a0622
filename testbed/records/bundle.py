"""The manifest of a bundle: the folder that travels from `quantize` to `serve`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from testbed.errors import UserError
from testbed.records.base import Accuracy, Frozen, Interval, Record, Sha256, Usage

Precision = Literal["fp32", "fp16", "int8", "int4"]


class Golden(Frozen):
    """A text with a model's FP32 logits for it, checked when a server starts. ``input_ids`` prove the tokenizer.

    ``model`` says whose logits they are: a server checks those of the model that it loads
    (``BundleManifest.goldens_of``).
    """

    model: Literal["teacher", "student"]
    text: str
    input_ids: tuple[int, ...]
    logits: tuple[float, ...]


class InvarianceCheck(Frozen):
    """Answers under one condition against the same texts alone and unpadded.

    Attributes:
        condition: ``batch of 8``, ``batch of 32``, ``padded to 64``, ``packed by 8``, …
        num_texts: test texts compared.
        flip_rate: share of them whose label differs.
        max_logit_change: largest absolute change of any logit.
    """

    condition: str
    num_texts: int
    flip_rate: float
    max_logit_change: float


class Verification(Frozen):
    """A variant against its parent, on the test split.

    Attributes:
        accuracy: its own.
        parent: name of the variant (or checkpoint) it is compared with.
        accuracy_difference: accuracy minus the parent's, paired on the same rows.
        difference_interval: of that difference.
        agreement: share of rows with the parent's label.
        max_logit_difference: largest absolute difference of any logit.
        all_finite: no NaN or infinity in any output.
        batch_flip_rate: share of rows whose label differs between alone and in a batch with others, or None.
        batch_max_logit_change: largest logit change between the two.
        invariance: each condition by itself; the two figures before are their worst.
        difference_lower_bound: one-sided 95 % bound of the accuracy difference: the variant is non-inferior by a
            margin where this is above minus the margin.
    """

    accuracy: Accuracy
    parent: str
    accuracy_difference: float
    difference_interval: Interval
    agreement: float
    max_logit_difference: float
    all_finite: bool
    batch_flip_rate: float | None = None
    batch_max_logit_change: float | None = None
    invariance: tuple[InvarianceCheck, ...] = ()
    difference_lower_bound: float | None = None


class Speed(Frozen):
    """Single-thread speed at batch 1 over real lengths, measured interleaved with the parent in one run.

    Attributes:
        texts_per_s: of this variant, a second of the thread's CPU time, tokenization left out.
        ratio_to_fp32: texts_per_s over the FP32 variant's of the same model.
        ratio_interval: of that ratio.
        packed_texts_per_s: texts in packed batches of 8, or None where there is no packed layout.
        packed_ratio_to_fp32: over the FP32 variant's packed layout.
    """

    texts_per_s: float
    ratio_to_fp32: float
    ratio_interval: Interval
    packed_texts_per_s: float | None = None
    packed_ratio_to_fp32: float | None = None


class OwnTokenizer(Frozen):
    """The tokenizer of a model that does not share the bundle's: its file with its hash, and the padding id."""

    file: str
    sha256: Sha256
    max_length: int
    pad_token_id: int


class Variant(Frozen):
    """A model and a precision.

    Attributes:
        name: ``<model>-<precision>``, such as ``student-int8``.
        model: ``teacher`` or ``student``.
        precision: arithmetic of the matrix products' weights.
        method: how it was made, such as ``export``, ``fp16``, ``dynamic int8 per channel``.
        inputs: names of the padded graph's inputs, in order: ``input_ids`` and ``attention_mask`` of shape
            [batch, length], int64, and ``token_type_ids`` where named. The output is ``logits`` [batch, num_labels],
            float32. The packed graph's inputs are described in docs/architecture.md.
        path: the ONNX file of the padded layout, relative to the bundle.
        packed_path: the same weights in the packed layout, or None where the architecture cannot be packed.
        files: every file of the variant (both layouts, external data too), relative path to sha256.
        size_bytes: of one layout, external data counted.
        num_parameters: of the model.
        flops_per_token: multiply-adds times 2 of one token's forward pass, in the padded layout without padding.
        packed_flops_per_token: of the packed layout, where it computes fewer (the last layer's first token alone is
            fed forward), else None.
        isa: CPU flags of the machine it was made and verified on.
        num_nodes: nodes of the padded graph.
        opsets: operator domain (empty for ONNX's own) to version.
        operators: operator to how many nodes of it the padded graph has.
        providers: execution provider to how many nodes it ran on the machine that verified it, after optimisation.
        fused: names of the fused operators that the graph holds, with their count.
        verification: against its parent.
        speed: measured on the machine that made it, or None.
        usage: what making and verifying it used.
        warning: what a user must know (``not worth it here: …``), or None.
        tokenizer: where the model reads texts by ids of its own, else None: the bundle's tokenizer.
    """

    name: str
    model: Literal["teacher", "student"]
    precision: Precision
    method: str
    inputs: tuple[str, ...]
    path: str
    packed_path: str | None = None
    files: dict[str, Sha256]
    size_bytes: int
    num_parameters: int
    flops_per_token: float
    packed_flops_per_token: float | None = None
    isa: tuple[str, ...]
    num_nodes: int
    opsets: dict[str, int] = Field(default_factory=dict)
    operators: dict[str, int] = Field(default_factory=dict)
    providers: dict[str, int] = Field(default_factory=dict)
    fused: dict[str, int] = Field(default_factory=dict)
    verification: Verification
    speed: Speed | None = None
    usage: Usage
    warning: str | None = None
    tokenizer: OwnTokenizer | None = None


class Refusal(Frozen):
    """A variant that was asked for and is not in the bundle: which bound it broke, and its figures."""

    name: str
    reason: str
    verification: Verification | None = None


class BundleManifest(Record):
    """What a bundle holds.

    Attributes:
        name: the experiment's name; the model name in the server's protocols.
        version: counts up; the version in the protocols.
        labels: label names by id.
        max_length: tokens at most, special tokens counted.
        pad_token_id: for padded batches.
        tokenizer_file, tokenizer_sha256: the tokenizer alone decides text to ids.
        lengths: token counts of the test split's texts, sorted: the real length mix, for warm-up and planning.
        goldens: texts checked at start, some for each model.
        variants: at least one.
        refused: variants that broke a bound of the experiment file.
        usage: the whole of export, quantization and verification.
    """

    kind: Literal["BundleManifest"] = "BundleManifest"
    name: str
    version: int = 1
    task: Literal["text-classification"] = "text-classification"
    labels: tuple[str, ...]
    max_length: int
    pad_token_id: int
    tokenizer_file: str = "tokenizer.json"
    tokenizer_sha256: Sha256
    lengths: tuple[int, ...]
    goldens: tuple[Golden, ...]
    variants: tuple[Variant, ...]
    refused: tuple[Refusal, ...] = ()
    usage: Usage

    def variant(self, name: str) -> Variant:
        """Return the variant of that name; raises UserError that lists the names there are."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        names = ", ".join(v.name for v in self.variants)
        msg = f"no variant {name!r} in bundle {self.name!r}; help: one of {names}"
        raise UserError(msg)

    def goldens_of(self, variant: Variant) -> tuple[Golden, ...]:
        """Return the goldens of the variant's model."""
        return tuple(golden for golden in self.goldens if golden.model == variant.model)
