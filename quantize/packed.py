"""The packed layout of a BERT-like classifier, built operator by operator: no token is computed that no text has.

Linear layers, activations and normalisations run on ``[tokens, width]``, all texts one after the other. Only the
attention needs to know which tokens belong together: there the tokens are gathered into ``[texts, longest]`` slots,
and the answers are gathered back. The gathers are row copies; a block-diagonal mask over one long row would instead
cost the square of all tokens.

The head reads the first token of the last layer. So of that layer only keys and values are needed of every token: the
rest of it, from the scores to the last normalisation, runs on ``[texts, width]``.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from quantize.checkpoint import Checkpoint
from quantize.editor import CONTRIB, Editor
from quantize.encoder import Encoder, Floats, Layer, Linear, Norm, read_encoder

OPSET, IR_VERSION = 18, 9
INPUTS = {"input_ids": "tokens", "segment_ids": "tokens", "position_ids": "tokens", "first_token": "texts"}
# Added to the score of a slot without a token: exp() of it is 0 in float32, and it does not overflow float16.
MASKED = -1e4


def packed_graph(checkpoint: Checkpoint) -> onnx.ModelProto | None:
    """Return the classifier in the packed layout (docs/architecture.md), FP32, or None where it cannot be packed."""
    encoder = read_encoder(checkpoint.model, max_length=checkpoint.tokenizer.max_length)
    return None if encoder is None else _Builder(encoder).build()


class _Builder:
    """Adds the nodes of one encoder to an empty graph."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.width = encoder.layers[0].query.weight.shape[1]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [axis]) for name, axis in INPUTS.items()]
        num_labels = encoder.classifier.bias.shape[0]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", num_labels])]
        graph = helper.make_graph([], "packed", inputs, outputs)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        self.editor = Editor(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION))

    def build(self) -> onnx.ModelProto:
        """Return the graph of the whole classifier."""
        self._geometry()
        hidden = self._embed()
        *others, last = self.encoder.layers
        for number, layer in enumerate(others):
            name = f"layer{number}"
            hidden = self._feed_forward(self._attention(hidden, layer, f"{name}/attention"), hidden, layer, name)
        name = f"layer{len(others)}"
        attended = self._attention(hidden, last, f"{name}/attention", first_only=True)
        first = self.editor.add("Gather", [hidden, "first_token"], "first_hidden")
        pooled = self._head(self._feed_forward(attended, first, last, name), self.encoder.pooler, "pooler/dense")
        active = self.editor.add(
            self.encoder.pooler_activation,
            [pooled],
            "pooler/active",
            domain=CONTRIB if self.encoder.pooler_activation == "Gelu" else "",
        )
        self._head(active, self.encoder.classifier, "logits")
        return self.editor.finish()

    def _geometry(self) -> None:
        """Add what the attention needs: the token in each slot, the slot of each token, and which slots are empty."""
        add, ints = self.editor.add, self._ints
        add("ReduceMax", ["position_ids", ints("axis0", [0])], "last_position", keepdims=0)
        add("Add", ["last_position", ints("scalar1", 1)], "longest")
        add("Range", [ints("scalar0", 0), "longest", ints("scalar1", 1)], "slots")
        add("Shape", ["input_ids"], "num_tokens")
        add("Concat", ["first_token", "num_tokens"], "bounds", axis=0)
        add("Slice", ["bounds", ints("list1", [1]), ints("end", [2**62]), ints("axis0", [0])], "text_ends")
        add("Sub", ["text_ends", "first_token"], "text_lengths")
        add("Unsqueeze", ["text_lengths", ints("axis1", [1])], "lengths_column")
        add("Less", ["slots", "lengths_column"], "is_token")
        add("Unsqueeze", ["first_token", ints("axis1", [1])], "first_column")
        add("Add", ["first_column", "slots"], "token_or_beyond")
        add("Sub", ["num_tokens", ints("list1", [1])], "last_token")
        add("Min", ["token_or_beyond", "last_token"], "token_of_slot")
        add("Mul", ["segment_ids", "longest"], "first_slot")
        add("Add", ["first_slot", "position_ids"], "slot_of_token")
        add("Cast", ["is_token"], "key_mask", to=TensorProto.INT32)
        if self.encoder.distance_bias is not None:
            self._distance_bias(self.encoder.distance_bias)

    def _distance_bias(self, table: Floats) -> None:
        """Add MPNet's bias on the scores, [1, heads, longest, longest], from its table over distances."""
        add, ints = self.editor.add, self._ints
        longest_text = (len(table) + 1) // 2
        add("Add", ["slots", ints("offset", longest_text - 1)], "key_offsets")
        add("Unsqueeze", ["slots", ints("axis1", [1])], "query_column")
        add("Sub", ["key_offsets", "query_column"], "distances")
        add("Gather", [self.editor.tensor("distance_table", table), "distances"], "bias_last")
        add("Transpose", ["bias_last"], "bias_by_head", perm=[2, 0, 1])
        add("Unsqueeze", ["bias_by_head", ints("axis0", [0])], "distance_bias")

    def _embed(self) -> str:
        encoder, editor = self.encoder, self.editor
        words = editor.add("Gather", [editor.tensor("words", encoder.words), "input_ids"], "word_rows")
        places = editor.add("Gather", [editor.tensor("positions", encoder.positions), "position_ids"], "position_rows")
        hidden = self._sum_and_norm(words, places, encoder.embedding_norm, None, "embedded")
        return hidden if encoder.projection is None else self._linear(hidden, encoder.projection, "projection")

    def _feed_forward(self, attended: str, hidden: str, layer: Layer, name: str) -> str:
        """Add what follows a layer's attention, each row for itself: ``attended`` and ``hidden`` have the same rows."""
        output = self._matmul(attended, layer.output.weight, f"{name}/output")
        middle = self._sum_and_norm(output, hidden, layer.attention_norm, layer.output.bias, f"{name}/attention_norm")
        wide = self._matmul(middle, layer.up.weight, f"{name}/up")
        bias = self.editor.tensor(f"{name}/up/bias", layer.up.bias)
        active = self.editor.add("BiasGelu", [wide, bias], f"{name}/gelu", domain=CONTRIB)
        narrow = self._matmul(active, layer.down.weight, f"{name}/down")
        return self._sum_and_norm(narrow, middle, layer.output_norm, layer.down.bias, f"{name}/output_norm")

    def _attention(self, hidden: str, layer: Layer, name: str, *, first_only: bool = False) -> str:
        """Add one product for queries, keys and values, unpack, attend, pack again.

        With ``first_only`` only the first token of each text asks, and the answer has one row a text.
        """
        editor, thirds = self.editor, [f"{name}/{part}" for part in ("query", "key", "value")]
        projections = (layer.query, layer.key, layer.value)
        merged = self._matmul(hidden, np.concatenate([part.weight for part in projections], axis=1), f"{name}/merged")
        slots = editor.add("Gather", [merged, "token_of_slot"], f"{name}/slots")
        editor.split(slots, self._ints("thirds", [self.width] * 3), thirds, axis=2)
        bias = editor.tensor(f"{name}/bias", np.concatenate([part.bias for part in projections]))
        scores = ["distance_bias"] if self.encoder.distance_bias is not None else []
        if first_only:
            thirds[0] = self._first(thirds[0], axis=1)
            scores = [self._first(score, axis=2) for score in scores]
        attended = editor.add(
            "MultiHeadAttention",
            [*thirds, bias, "key_mask", *scores],
            f"{name}/attended",
            domain=CONTRIB,
            num_heads=self.encoder.num_heads,
            mask_filter_value=MASKED,
        )
        rows = editor.add("Reshape", [attended, self._ints("rows", [-1, self.width])], f"{name}/rows")
        return rows if first_only else editor.add("Gather", [rows, "slot_of_token"], f"{name}/tokens")

    def _first(self, source: str, *, axis: int) -> str:
        """Add what keeps of an axis its first slot."""
        return self.editor.add("Gather", [source, self._ints("list0", [0])], f"{source}/first", axis=axis)

    def _sum_and_norm(self, left: str, right: str, norm: Norm, bias: Floats | None, name: str) -> str:
        """Add ``left`` (and a bias) to ``right`` and normalise.

        Not SkipLayerNormalization: ONNX Runtime's CPU kernel of it takes five times as long as these three together.
        """
        if bias is not None:
            left = self.editor.add("Add", [left, self.editor.tensor(f"{name}/added", bias)], f"{name}/biased")
        summed = self.editor.add("Add", [left, right], f"{name}/sum")
        weights = [self.editor.tensor(f"{name}/weight", norm.weight), self.editor.tensor(f"{name}/bias", norm.bias)]
        return self.editor.add("LayerNormalization", [summed, *weights], name, epsilon=norm.epsilon)

    def _matmul(self, hidden: str, weight: Floats, name: str) -> str:
        return self.editor.add("MatMul", [hidden, self.editor.tensor(f"{name}/weight", weight)], name)

    def _linear(self, hidden: str, linear: Linear, name: str) -> str:
        product = self._matmul(hidden, linear.weight, f"{name}/product")
        return self.editor.add("Add", [product, self.editor.tensor(f"{name}/bias", linear.bias)], name)

    def _head(self, hidden: str, linear: Linear, name: str) -> str:
        weight = self.editor.tensor(f"{name}/weight", linear.weight)
        return self.editor.add("Gemm", [hidden, weight, self.editor.tensor(f"{name}/bias", linear.bias)], name)

    def _ints(self, name: str, value: int | list[int]) -> str:
        return self.editor.tensor(name, np.array(value, dtype=np.int64))
