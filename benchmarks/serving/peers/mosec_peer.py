"""MOSEC: its Rust front end and one worker process with dynamic batches of at most 8."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from classifier import BATCH_WAIT_S, MAX_BATCH, Classifier, arguments
from mosec import Server, Worker


class Texts(Worker):  # type: ignore[misc]
    """Classifies batches of texts."""

    def __init__(self) -> None:
        self.classify = Classifier(Path(os.environ["PEER_BUNDLE"]), os.environ["PEER_VARIANT"])

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, Any]]:
        """Classify a batch."""
        return self.classify([one["text"] for one in data])


if __name__ == "__main__":
    options = arguments()
    os.environ.update(PEER_BUNDLE=str(options.bundle), PEER_VARIANT=options.variant)
    # MOSEC reads the command line itself, in every process.
    sys.argv = [sys.argv[0], "--port", str(options.port), "--address", "127.0.0.1"]
    os.environ["MOSEC_LOG_LEVEL"] = "warning"
    server = Server()
    server.append_worker(Texts, num=1, max_batch_size=MAX_BATCH, max_wait_time=int(BATCH_WAIT_S * 1e3))
    server.run()
