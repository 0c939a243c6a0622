"""Texts to logits for one batch: tokenizer, layout and backend behind each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serve import layouts
from serve.backend import Backend, probabilities
from serve.jobs import Floats
from serve.layouts import Feed
from testbed import allocator
from testbed.errors import UserError
from testbed.records.bundle import Golden
from testbed.tokenization import TextTokenizer


class Engine:
    """What the lane drives, and what is verified and timed before it does.

    Args:
        tokenizer: text to ids.
        backend: the loaded graph.
        packed: the graph takes the packed layout.
        pad_token_id: of the padded layout.
    """

    def __init__(self, *, tokenizer: TextTokenizer, backend: Backend, packed: bool, pad_token_id: int) -> None:
        self.tokenizer = tokenizer
        self.backend = backend
        self._packed = packed
        self._pad_token_id = pad_token_id

    def feed(self, ids: Sequence[Sequence[int]]) -> Feed:
        """Return the graph's inputs."""
        if self._packed:
            return layouts.packed(ids)
        return layouts.padded(ids, inputs=self.backend.inputs, pad_token_id=self._pad_token_id)

    def run(self, feed: Feed) -> Floats:
        """Return logits [texts, num_labels]; raises what ONNX Runtime raises."""
        return self.backend.run(feed)

    def give_memory_back(self) -> None:
        """Return to the kernel what the largest batches needed, by ONNX Runtime and, where it is glibc's, the heap."""
        self.backend.shrink(self.feed([[self._pad_token_id]]))
        allocator.trim()

    def compute(self, texts: Sequence[str]) -> int:
        """Do all of a batch's work for its time alone, and return the tokens computed, padding counted."""
        feed = self.feed(self.tokenizer.encode_batch(texts))
        probabilities(self.run(feed))
        return int(feed["input_ids"].size)

    def check_goldens(self, goldens: Sequence[Golden], *, num_labels: int, tolerance: float) -> float:
        """Answer the bundle's golden texts and return the largest difference of any logit.

        Args:
            goldens: texts with the ids and logits that they must give.
            num_labels: width of the answer.
            tolerance: largest difference of a logit that this precision may show.

        Raises:
            UserError: other token ids, another width, NaN, or logits too far away.
        """
        worst = 0.0
        for golden in goldens:
            ids = self.tokenizer.encode(golden.text)
            if ids != list(golden.input_ids):
                msg = f"the tokenizer splits {golden.text!r} differently than at export; help: quantize again"
                raise UserError(msg)
            logits = self.run(self.feed([ids]))
            if logits.shape != (1, num_labels) or not np.isfinite(logits).all():
                msg = f"the model answers {golden.text!r} with {logits.tolist()}, {num_labels} numbers are needed"
                raise UserError(msg)
            worst = max(worst, float(np.abs(logits[0] - np.array(golden.logits)).max()))
        if worst > tolerance:
            msg = (
                f"a golden text's logits are off by {worst:.3g}, this precision may differ by {tolerance:.3g} on this "
                "machine; help: quantize on the machine that serves, or serve another precision"
            )
            raise UserError(msg)
        return worst
