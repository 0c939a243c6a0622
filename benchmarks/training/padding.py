"""How full batches of 32 texts are: in random order, as the Trainer draws them, and by length, as this project does.

    python -m benchmarks.training.padding DATASET

No training: the lengths alone decide it. Prints real and padded tokens a text for ten drawn epochs of each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.compare import JOB
from testbed.dataset import read_split
from testbed.tokenization import TextTokenizer
from train.batches import plan
from train.pretrained import model_folder

EPOCHS = 10


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    texts = read_split(parser.parse_args().dataset, "train").texts
    tokenizer = TextTokenizer(model_folder(JOB["model"]) / "tokenizer.json", max_length=JOB["max_length"])
    lengths = np.array([len(ids) for ids in tokenizer.encode_batch(texts)])
    size = JOB["batch_size"]
    drawn = [np.random.default_rng(epoch).permutation(len(lengths)) for epoch in range(EPOCHS)]
    random_order = [[order[begin : begin + size] for begin in range(0, len(order), size)] for order in drawn]
    budget = size * JOB["max_length"]
    by_length = [plan(lengths, token_budget=budget, max_texts=size, seed=0, epoch=epoch) for epoch in range(EPOCHS)]
    print(
        f"{len(texts)} texts of {lengths.mean():.1f} tokens; padded to the longest of {size}: "
        f"{padded(random_order, lengths):.1f} a text in random order, {padded(by_length, lengths):.1f} by length"
    )


def padded(epochs: list[list[NDArray[np.int64]]], lengths: NDArray[np.int64]) -> float:
    """Return the mean number of padded tokens a text."""
    tokens = sum(len(batch) * int(lengths[batch].max()) for batches in epochs for batch in batches)
    return tokens / (len(epochs) * len(lengths))


if __name__ == "__main__":
    main()
