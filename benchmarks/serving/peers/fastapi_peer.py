"""The endpoint that one writes first: a pydantic body, a sync function in the thread pool, one text at a time."""

from __future__ import annotations

from typing import Any

import uvicorn
from classifier import Classifier, arguments
from fastapi import FastAPI
from pydantic import BaseModel

options = arguments()
classify = Classifier(options.bundle, options.variant)
app = FastAPI()


class Question(BaseModel):
    """A text to classify."""

    text: str


@app.get("/health")
def health() -> dict[str, str]:
    """Answer that it lives."""
    return {"status": "ok"}


@app.post("/predict")
def predict(question: Question) -> dict[str, Any]:
    """Classify one text."""
    return classify([question.text])[0]


uvicorn.run(app, port=options.port, log_level="warning")
