"""LitServe: one worker process, batches of at most 8."""

from __future__ import annotations

from typing import Any

import litserve
from classifier import BATCH_WAIT_S, MAX_BATCH, Classifier, arguments

options = arguments()


class Api(litserve.LitAPI):  # type: ignore[misc]
    """Decode, predict a batch, encode."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's form
        """Load the model in the worker."""
        self.classify = Classifier(options.bundle, options.variant)

    def decode_request(self, request: dict[str, str]) -> str:
        """Return the text."""
        return request["text"]

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        """Classify a batch."""
        return self.classify(list(texts))

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        """Return the answer as it is."""
        return output


if __name__ == "__main__":
    api = Api(max_batch_size=MAX_BATCH, batch_timeout=BATCH_WAIT_S)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=options.port, generate_client_file=False, log_level="warning")
