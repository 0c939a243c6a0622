"""Only the rows of the embedding that the data uses are trained.

The other rows' gradients are zero and stay zero, and embeddings have no weight decay, so AdamW would leave them as they
are: to drop them for the training and to put them back afterwards changes no result. It saves their gradients, their
optimiser states and the pass over all of them in every step: half of a small BERT's parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.errors import UserError


class Vocabulary:
    """The token ids in use, and the change from the tokenizer's ids to rows of the smaller embedding and back.

    Args:
        encoded: the texts of every split, as token ids.
        pad_token_id: kept at its own id, as some architectures count positions from it.
    """

    def __init__(self, encoded: Sequence[Sequence[int]], *, pad_token_id: int) -> None:
        used = np.fromiter(chain.from_iterable(encoded), dtype=np.int64)
        self.kept: NDArray[np.int64] = np.union1d(used, np.arange(pad_token_id + 1))

    def rows_of(self, encoded: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the texts with each token id replaced by its row of the smaller embedding."""
        return [np.searchsorted(self.kept, np.asarray(ids, dtype=np.int64)).tolist() for ids in encoded]

    def shrink(self, model: Any) -> Tensor:  # noqa: ANN401 - transformers is untyped
        """Give the model the smaller embedding; returns the whole one, for ``restore``.

        Raises:
            UserError: a token that the model has no embedding for.
        """
        whole = model.get_input_embeddings()
        if self.kept[-1] >= len(whole.weight):
            msg = (
                f"a text has token id {self.kept[-1]}, the model has embeddings for {len(whole.weight)} ids: the "
                "tokenizer is another model's; help: give the folder the tokenizer that belongs to its model"
            )
            raise UserError(msg)
        model.set_input_embeddings(_embedding(whole.weight.detach()[self.kept].clone(), whole.padding_idx))
        kept: Tensor = whole.weight.detach()
        return kept

    def restore(self, model: Any, whole: Tensor) -> None:  # noqa: ANN401
        """Write the trained rows into ``whole`` and give that back to the model."""
        small = model.get_input_embeddings()
        complete = whole.to(small.weight.device).clone()
        complete[torch.from_numpy(self.kept)] = small.weight.detach()
        model.set_input_embeddings(_embedding(complete, small.padding_idx))


def _embedding(weight: Tensor, padding_idx: int | None) -> nn.Embedding:
    embedding = nn.Embedding(weight.shape[0], weight.shape[1], padding_idx=padding_idx, device="meta")
    embedding.weight = nn.Parameter(weight)
    return embedding
