"""The weights of a BERT-like classifier, read out of its PyTorch modules into one form for five architectures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """``x @ weight + bias``; weight [in, out], bias [out]."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class Norm:
    """LayerNormalization over the last axis."""

    weight: Floats
    bias: Floats
    epsilon: float


@dataclass(frozen=True)
class Layer:
    """One encoder layer, normalised after each residual sum."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    attention_norm: Norm
    up: Linear
    down: Linear
    output_norm: Norm


@dataclass(frozen=True)
class Encoder:
    """A classifier over the first token of its last layer.

    Attributes:
        words: embeddings by token id, [vocabulary, width].
        positions: by position inside a text from 0, the type embedding of a single text added, [positions, width].
        embedding_norm: after their sum.
        projection: from the embeddings' width to the layers', where they differ.
        layers: from the first to the last.
        num_heads: of the attention.
        distance_bias: added to the scores by (key position − query position + positions − 1), [2 positions − 1,
            heads]; None where the architecture has none.
        pooler: before the classifier, once a text.
        pooler_activation: ONNX operator after it.
        classifier: to the labels.
    """

    words: Floats
    positions: Floats
    embedding_norm: Norm
    projection: Linear | None
    layers: tuple[Layer, ...]
    num_heads: int
    distance_bias: Floats | None
    pooler: Linear
    pooler_activation: str
    classifier: Linear


@dataclass(frozen=True)
class Places:
    """Where an architecture keeps its parts: attribute paths, of a layer's parts below the layer."""

    base: str
    layers: str
    attention: tuple[str, str, str, str]
    attention_norm: str
    up: str
    down: str
    output_norm: str
    pooler: str
    pooler_activation: str
    classifier: str
    first_position: int = 0
    distance_bias: bool = False


_BERT_ATTENTION = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
)
_MPNET_ATTENTION = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")
_DISTILBERT_ATTENTION = ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin")
_BERT_FEED_FORWARD = ("intermediate.dense", "output.dense", "output.LayerNorm")
_DENSE_HEAD = "classifier.dense"

# RoBERTa's kind counts positions from its padding id + 1.
ARCHITECTURES = {
    "bert": Places(
        "bert", "encoder.layer", _BERT_ATTENTION, "attention.output.LayerNorm", *_BERT_FEED_FORWARD,
        "bert.pooler.dense", "Tanh", "classifier",
    ),
    "electra": Places(
        "electra", "encoder.layer", _BERT_ATTENTION, "attention.output.LayerNorm", *_BERT_FEED_FORWARD,
        _DENSE_HEAD, "Gelu", "classifier.out_proj",
    ),
    "roberta": Places(
        "roberta", "encoder.layer", _BERT_ATTENTION, "attention.output.LayerNorm", *_BERT_FEED_FORWARD,
        _DENSE_HEAD, "Tanh", "classifier.out_proj", first_position=2,
    ),
    "mpnet": Places(
        "mpnet", "encoder.layer", _MPNET_ATTENTION, "attention.LayerNorm", *_BERT_FEED_FORWARD,
        _DENSE_HEAD, "Tanh", "classifier.out_proj", first_position=2, distance_bias=True,
    ),
    "distilbert": Places(
        "distilbert", "transformer.layer", _DISTILBERT_ATTENTION, "sa_layer_norm", "ffn.lin1", "ffn.lin2",
        "output_layer_norm", "pre_classifier", "Relu", "classifier",
    ),
}  # fmt: skip


def read_encoder(model: PreTrainedModel, *, max_length: int) -> Encoder | None:
    """Return the classifier's weights, or None for an architecture (or a setting of one) that this form cannot say.

    Args:
        model: a …ForSequenceClassification.
        max_length: tokens of a text at most; positions beyond are left out.
    """
    config = model.config
    places = ARCHITECTURES.get(config.model_type)
    activation = getattr(config, "hidden_act", getattr(config, "activation", None))
    if places is None or activation != "gelu" or getattr(config, "position_embedding_type", "absolute") != "absolute":
        return None
    base = getattr(model, places.base)
    embeddings = base.embeddings
    projection = getattr(base, "embeddings_project", None)
    return Encoder(
        words=_array(embeddings.word_embeddings.weight),
        positions=_positions(embeddings, places.first_position, max_length),
        embedding_norm=_norm(embeddings.LayerNorm),
        projection=None if projection is None else _linear(projection),
        layers=tuple(_layer(module, places) for module in attrgetter(places.layers)(base)),
        num_heads=config.num_attention_heads,
        distance_bias=_distance_bias(base.encoder, max_length) if places.distance_bias else None,
        pooler=_linear(attrgetter(places.pooler)(model)),
        pooler_activation=places.pooler_activation,
        classifier=_linear(attrgetter(places.classifier)(model)),
    )


def _positions(embeddings: Any, first: int, max_length: int) -> Floats:  # noqa: ANN401 - an untyped torch module
    table = _array(embeddings.position_embeddings.weight)[first : first + max_length]
    types = getattr(embeddings, "token_type_embeddings", None)
    return table if types is None else table + _array(types.weight)[0]


def _layer(module: Any, places: Places) -> Layer:  # noqa: ANN401 - an untyped torch module
    def linear(path: str) -> Linear:
        return _linear(attrgetter(path)(module))

    query, key, value, output = (linear(path) for path in places.attention)
    return Layer(
        query=query,
        key=key,
        value=value,
        output=output,
        attention_norm=_norm(attrgetter(places.attention_norm)(module)),
        up=linear(places.up),
        down=linear(places.down),
        output_norm=_norm(attrgetter(places.output_norm)(module)),
    )


def _distance_bias(encoder: Any, max_length: int) -> Floats:  # noqa: ANN401 - an untyped torch module
    """Return MPNet's bias for each distance key − query, from −(max_length − 1) up, [2 max_length − 1, heads]."""
    import torch

    distances = torch.arange(1 - max_length, max_length)
    bucket: Callable[..., Any] = encoder.relative_position_bucket
    table = encoder.relative_attention_bias
    return _array(table(bucket(distances, num_buckets=table.num_embeddings)))


def _linear(module: Any) -> Linear:  # noqa: ANN401 - an untyped torch module
    return Linear(np.ascontiguousarray(_array(module.weight).T), _array(module.bias))


def _norm(module: Any) -> Norm:  # noqa: ANN401 - an untyped torch module
    return Norm(_array(module.weight), _array(module.bias), float(module.eps))


def _array(tensor: Any) -> Floats:  # noqa: ANN401 - an untyped torch tensor
    values: Floats = tensor.detach().float().cpu().numpy()
    return values
