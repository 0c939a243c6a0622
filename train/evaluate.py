"""A split through a model, without gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from train.batches import in_length_order
from train.loader import BatchReader, load
from train.precision import Precision
from train.tokens import TokenFile

# Without a backward pass nothing is kept, so batches may be larger than in training.
TOKEN_BUDGET = 4096
MAX_TEXTS = 256


def logits_of(
    model: Any,  # noqa: ANN401 - transformers is untyped
    tokens: TokenFile,
    *,
    pad_token_id: int,
    device: torch.device,
    precision: Precision,
) -> NDArray[np.float32]:
    """Return the logits of every text, float32 [texts, labels], in the split's order."""
    model.eval()
    budget = max(TOKEN_BUDGET, int(tokens.lengths.max()))
    plan = in_length_order(tokens.lengths, token_budget=budget, max_texts=MAX_TEXTS)
    logits = np.zeros((len(tokens), model.config.num_labels), dtype=np.float32)
    for batch in load(BatchReader(tokens, plan, pad_token_id=pad_token_id)):
        moved = batch.to(device)
        # Not inference_mode: a sharded model gathers its weights in here, for the next training step too.
        with torch.no_grad(), precision.autocast(device):
            output = model(input_ids=moved.input_ids, attention_mask=moved.attention_mask)
        logits[batch.indices.numpy()] = output.logits.float().cpu().numpy()
    return logits
