"""Ray Serve: one replica, `serve.batch` of at most 8."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import ray
from classifier import BATCH_WAIT_S, MAX_BATCH, Classifier, arguments
from ray import serve
from starlette.requests import Request

options = arguments()
HERE = str(Path(__file__).parent)


@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0.1})
class Texts:
    """Classifies batches of texts."""

    def __init__(self, bundle: Path, variant: str) -> None:
        self.classify = Classifier(bundle, variant)

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
    async def batch(self, texts: list[str]) -> list[dict[str, Any]]:
        """Classify a batch."""
        return self.classify(texts)

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Answer one request."""
        found: dict[str, Any] = await self.batch((await request.json())["text"])
        return found


ray.init(num_cpus=1, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": HERE}}, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": options.port})
serve.run(Texts.bind(options.bundle.resolve(), options.variant))
while True:
    time.sleep(60)
