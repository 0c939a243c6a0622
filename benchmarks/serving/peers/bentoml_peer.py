"""BentoML: one worker, its adaptive batching with at most 8 texts. As a script it starts `bentoml serve` on itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import bentoml
from classifier import MAX_BATCH, Classifier, arguments


@bentoml.service(workers=1, traffic={"timeout": 30})
class Texts:
    """Classifies batches of texts."""

    def __init__(self) -> None:
        self.classify = Classifier(Path(os.environ["PEER_BUNDLE"]), os.environ["PEER_VARIANT"])

    @bentoml.api(batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=1000)
    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        """Classify a batch."""
        return self.classify(texts)


if __name__ == "__main__":
    options = arguments()
    here = Path(__file__).parent
    os.environ.update(PEER_BUNDLE=str(options.bundle.resolve()), PEER_VARIANT=options.variant, BENTOML_DO_NOT_TRACK="1")
    os.chdir(here)
    address = ["--host", "127.0.0.1", "--port", str(options.port)]
    os.execv(sys.executable, [sys.executable, "-m", "bentoml", "serve", "bentoml_peer:Texts", *address])
