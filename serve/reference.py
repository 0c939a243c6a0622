"""The inference paths in the OpenAPI description: they are answered before FastAPI, which so knows nothing of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

# A text of nothing but white space is refused; the last five are white space to Python and not to JSON Schema's \s.
Text = Annotated[str, Field(pattern=r"[^\s\u001c-\u001f\u0085]")]
REF = "#/components/schemas/{model}"


class Tensor(BaseModel):
    """An input: ``text`` (BYTES, [N] or [N, 1]), or ``input_ids`` and ``attention_mask`` (INT64, [N, length])."""

    model_config = ConfigDict(extra="allow")
    name: Literal["text", "input_ids", "attention_mask", "token_type_ids"]
    datatype: Literal["BYTES", "INT64"]
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=2)]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class Output(BaseModel):
    """A wanted output; ``parameters`` may hold ``binary_data`` (bool) and ``classification`` (a number of classes)."""

    model_config = ConfigDict(extra="allow")
    name: Literal["label", "probabilities", "logits"]
    parameters: dict[str, Any] | None = None


class InferenceRequest(BaseModel):
    """``parameters`` may hold ``timeout`` (microseconds), ``priority`` (1 = first) and ``binary_data_output``."""

    model_config = ConfigDict(extra="allow")
    id: str | None = None
    inputs: Annotated[list[Tensor], Field(min_length=1)]
    outputs: list[Output] | None = None
    parameters: dict[str, Any] | None = None


class AnswerTensor(BaseModel):
    """An output: ``data`` is flat, row after row."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class InferenceAnswer(BaseModel):
    """The outputs, in the order in which they were asked for."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[AnswerTensor]


class ClassificationParameters(BaseModel):
    """How many labels to show, and which function of the logits."""

    model_config = ConfigDict(extra="allow")
    top_k: Annotated[int, Field(ge=1)] | None = None
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class ClassificationRequest(BaseModel):
    """One text or several."""

    model_config = ConfigDict(extra="allow")
    inputs: Text | Annotated[list[Text], Field(min_length=1)]
    parameters: ClassificationParameters | None = None


class Score(BaseModel):
    """A label and its score."""

    label: str
    score: float


class PredictRequest(BaseModel):
    """KServe v1: one text an instance."""

    model_config = ConfigDict(extra="allow")
    instances: Annotated[list[Text], Field(min_length=1)]


class Prediction(BaseModel):
    """The best label, its score, and all probabilities."""

    label: str
    score: float
    probabilities: dict[str, float]


class PredictAnswer(BaseModel):
    """One prediction an instance."""

    predictions: list[Prediction]


class Problem(BaseModel):
    """What every error looks like; ``reason`` is one word, the same as in the metrics."""

    error: str
    reason: str


MODELS = (
    InferenceRequest,
    InferenceAnswer,
    ClassificationRequest,
    Score,
    PredictRequest,
    PredictAnswer,
    Problem,
)
NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
VERSION = {"name": "version", "in": "path", "required": True, "schema": {"type": "string"}}
SCORES = {"type": "array", "items": {"type": "array", "items": {"$ref": REF.format(model="Score")}}}
PROBLEMS = {
    "400": "the body is not what the protocol asks for",
    "401": "no valid API key",
    "404": "no such model or version",
    "413": "over a limit",
    "415": "an unknown Content-Encoding",
    "429": "the queue is full; see Retry-After",
    "500": "the model gave no usable answer",
    "503": "draining, not ready, or the deadline cannot be kept; see Retry-After",
}


def add_inference_paths(app: FastAPI) -> None:
    """Let the application's OpenAPI description hold the inference paths, and say how every path's errors look."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = plain()
            schema.setdefault("components", {}).setdefault("schemas", {}).update(_schemas())
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"] = {**operation["responses"], **_problems()}
            for path, operation in _operations().items():
                schema["paths"].setdefault(path, {})["post"] = operation
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def _operations() -> dict[str, dict[str, Any]]:
    infer = {"request": "InferenceRequest", "answer": {"$ref": REF.format(model="InferenceAnswer")}}
    classify = {"request": "ClassificationRequest", "answer": SCORES}
    predict = {"request": "PredictRequest", "answer": {"$ref": REF.format(model="PredictAnswer")}}
    return {
        "/v2/models/{name}/infer": _operation("Inference (Open Inference Protocol)", infer, [NAME]),
        "/v2/models/{name}/versions/{version}/infer": _operation("Inference by one version", infer, [NAME, VERSION]),
        "/": _operation("Classification (Hugging Face)", classify, []),
        "/predict": _operation("Classification (Hugging Face)", classify, []),
        "/v1/models/{name}:predict": _operation("Prediction (KServe v1)", predict, [NAME]),
    }


def _operation(summary: str, bodies: dict[str, Any], parameters: list[dict[str, Any]]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REF.format(model=bodies["request"])}}}
    answer = {"description": "the answer", "content": {"application/json": {"schema": bodies["answer"]}}}
    return {
        "summary": summary,
        "parameters": parameters,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": answer, **_problems()},
    }


def _problems() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REF.format(model="Problem")}}}
    return {status: {"description": what, "content": content} for status, what in PROBLEMS.items()}


def _schemas() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for model in MODELS:
        schema = model.model_json_schema(ref_template=REF)
        found.update(schema.pop("$defs", {}))
        found[model.__name__] = schema
    return found
