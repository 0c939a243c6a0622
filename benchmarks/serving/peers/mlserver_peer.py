"""MLServer: a custom runtime in the server's own process, adaptive batching of at most 8."""

from __future__ import annotations

import asyncio

from classifier import BATCH_WAIT_S, MAX_BATCH, Classifier, arguments
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

options = arguments("--grpc-port", "--metrics-port")


class Texts(MLModel):  # type: ignore[misc]
    """Classifies batches of texts."""

    async def load(self) -> bool:
        """Load the model."""
        self.classify = Classifier(options.bundle, options.variant)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Classify a batch."""
        texts = StringCodec.decode_input(payload.inputs[0])
        labels = [one["label"] for one in self.classify(texts)]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("label", labels)])


async def main() -> None:
    """Serve until told to stop."""
    settings = Settings(
        host="127.0.0.1",
        http_port=options.port,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        parallel_workers=0,
        debug=False,
    )
    server = MLServer(settings)
    model = ModelSettings(name="text", implementation=Texts, max_batch_size=MAX_BATCH, max_batch_time=BATCH_WAIT_S)
    await server.start([model])


asyncio.run(main())
