"""Tiny but real inputs for tests: a CSV that can be learnt, and random checkpoints of several architectures."""

from __future__ import annotations

import csv
import random
from pathlib import Path

# A text is about what its key words are about; the filler words say nothing.
KEYWORDS = {
    "animal": "cat dog horse whale sparrow tiger".split(),
    "city": "paris tokyo lima oslo cairo boston".split(),
    "number": "seven eleven forty ninety dozen million".split(),
}
FILLER = "what is the name of a big and old one that we saw near here when it was not so far away ?".split()
LABELS = tuple(KEYWORDS)
# Where an architecture's position embeddings are counted from its padding id, padding must stand at 1.
SPECIAL_TOKENS = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    "roberta": ("<s>", "<pad>", "</s>", "<unk>"),
}
ROBERTA_LIKE = ("roberta", "mpnet")


def make_rows(rows: int = 240, *, seed: int = 0, max_words: int = 18) -> list[dict[str, str]]:
    """Return distinct rows of ``text`` (3 to ``max_words`` words) and ``label``."""
    draw = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < rows:
        label = draw.choice(LABELS)
        words = draw.choices(FILLER, k=draw.randint(2, max_words - 1))
        words.insert(draw.randint(0, len(words)), draw.choice(KEYWORDS[label]))
        found[" ".join(words)] = label
    return [{"text": text, "label": label} for text, label in found.items()]


def write_csv(path: Path, rows: int = 240, *, seed: int = 0) -> Path:
    """Write a CSV with the columns ``text`` and ``label``; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=["text", "label"])
        writer.writeheader()
        writer.writerows(make_rows(rows, seed=seed))
    return path


def write_tokenizer(folder: Path, *, special_tokens: tuple[str, ...], max_length: int = 64) -> None:
    """Write a fast tokenizer whose vocabulary covers the CSV, with the published files' trap: padding to 128."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for group in KEYWORDS.values() for word in group} | set(FILLER))
    vocabulary = {token: index for index, token in enumerate([*special_tokens, *words])}
    begin, pad, end, unknown = (
        special_tokens if special_tokens[0] == "<s>" else [special_tokens[i] for i in (2, 0, 3, 1)]
    )
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(begin, vocabulary[begin]), (end, vocabulary[end])],
    )
    tokenizer.enable_padding(length=128, pad_id=vocabulary[pad], pad_token=pad)
    tokenizer.enable_truncation(128)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=unknown,
        pad_token=pad,
        cls_token=begin,
        sep_token=end,
        bos_token=begin,
        eos_token=end,
        model_max_length=max_length,
    ).save_pretrained(folder)


def write_checkpoint(
    folder: Path,
    architecture: str = "bert",
    num_layers: int = 2,
    *,
    hidden_size: int = 32,
    num_heads: int = 4,
    max_length: int = 64,
    labels: tuple[str, ...] = LABELS,
    seed: int = 0,
    dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> Path:
    """Write a random Hugging Face checkpoint: ``config.json``, ``model.safetensors`` and its tokenizer.

    Args:
        folder: made if missing.
        architecture: ``bert``, ``distilbert``, ``roberta``, ``mpnet``, ``deberta-v2`` or ``electra``.
        num_layers: hidden layers.
        hidden_size: width; the feed-forward layers are twice as wide.
        num_heads: attention heads.
        max_length: of the tokenizer; positions leave a little room for RoBERTa's offset.
        labels: label names by id.
        seed: of the weights.
        dropout: of hidden states and attention.
        initializer_range: standard deviation of the weights; 0.02 is made for widths of hundreds, at 32 the words'
            differences hardly pass through, and whether a few epochs learn anything depends on the seed.
    """
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    special_tokens = SPECIAL_TOKENS["roberta" if architecture in ROBERTA_LIKE else "bert"]
    write_tokenizer(folder, special_tokens=special_tokens, max_length=max_length)
    words = {word for group in KEYWORDS.values() for word in group} | set(FILLER)
    shape: dict[str, float] = {
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "intermediate_size": 2 * hidden_size,
        "initializer_range": initializer_range,
    }
    if architecture == "distilbert":
        shape = {"dim": hidden_size, "n_layers": num_layers, "n_heads": num_heads, "hidden_dim": 2 * hidden_size}
        shape |= {"dropout": dropout, "attention_dropout": dropout, "initializer_range": initializer_range}
    if architecture == "electra":
        shape["embedding_size"] = hidden_size
    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(words) + len(special_tokens),
        max_position_embeddings=max_length + 4,
        pad_token_id=special_tokens.index("<pad>" if architecture in ROBERTA_LIKE else "[PAD]"),
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
        **shape,
    )
    torch.manual_seed(seed)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder
