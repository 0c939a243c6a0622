"""The FastAPI application: health, metadata, repository, metrics, documentation and the page to try it out."""

from __future__ import annotations

import importlib.metadata
import logging
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from serve import instruments, reference
from serve.errors import ForeignOrigin, MethodNotAllowed, NotFound, ServeError
from serve.fleet import Fleet
from serve.lifecycle import Lifecycle
from serve.model import Model
from serve.repository import Repository
from serve.triton_statistics import statistics_of

logger = logging.getLogger(__name__)

PAGE = Path(__file__).with_name("page.html")
EXTENSIONS = ["binary_tensor_data", "classification", "model_repository", "statistics", "model_configuration"]


def create_app(repository: Repository, lifecycle: Lifecycle, fleet: Fleet) -> FastAPI:
    """Return the application; inference itself is answered by serve.exchange before it gets here."""
    app = FastAPI(
        title="breakeven",
        version=importlib.metadata.version("breakeven"),
        description="Text classification over the Open Inference Protocol, the Hugging Face form and KServe v1.",
    )
    _add_error_handlers(app)
    _add_server_routes(app)
    _add_health_routes(app, repository, lifecycle)
    _add_model_routes(app, repository)
    _add_repository_routes(app, repository, fleet)
    reference.add_inference_paths(app)
    return app


def _add_server_routes(app: FastAPI) -> None:
    @app.get(
        "/",
        summary="A page to try a text in the browser; for other clients KServe v1's word that the server lives",
        responses={200: {"content": {"text/html": {}, "application/json": {}}}},
    )
    async def page(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(PAGE.read_text(encoding="utf-8"))
        return JSONResponse({"status": "alive"})

    @app.get("/v2", summary="Server metadata")
    async def server_metadata() -> dict[str, Any]:
        return {"name": app.title, "version": app.version, "extensions": EXTENSIONS}


def _add_health_routes(app: FastAPI, repository: Repository, lifecycle: Lifecycle) -> None:
    @app.get("/v2/health/live", summary="Whether the process answers")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get(
        "/v2/health/ready",
        summary="Whether inference is answered: only after verification and warm-up, no more once draining",
        responses={503: {"description": "starting, draining, or failed"}},
    )
    async def ready() -> JSONResponse:
        is_ready = lifecycle.is_ready()
        # A variant that was verified on another instruction set is ready, but nobody has measured it here.
        warnings = {model.card.name: warning for model in repository.loaded() if (warning := model.card.warning)}
        answer = {"ready": is_ready, "phase": lifecycle.phase.name.lower(), "warnings": warnings}
        return JSONResponse(answer, status_code=200 if is_ready else 503)

    @app.get(
        "/metrics",
        summary="Metrics of all workers, for Prometheus",
        response_class=PlainTextResponse,
    )
    async def metrics() -> Response:
        for model in repository.loaded():
            model.note_levels()
        return Response(instruments.exposition(), media_type=CONTENT_TYPE_LATEST)


def _add_model_routes(app: FastAPI, repository: Repository) -> None:
    def described(model: Model) -> dict[str, Any]:
        return model.card.metadata(repository.versions(model.card.name))

    @app.get("/v2/models/stats", summary="Statistics of all models")
    async def all_statistics() -> dict[str, Any]:
        return {"model_stats": [statistics_of(model.card) for model in repository.loaded()]}

    # Each of these paths exists with and without a version; the handlers are the same.
    for prefix in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):

        @app.get(prefix, summary="Model metadata, with proof of execution")
        async def model_metadata(name: str, version: str | None = None) -> dict[str, Any]:
            return described(repository.get(name, version))

        @app.get(
            prefix + "/ready", summary="Whether the model is loaded, and what is to be known of it on this machine"
        )
        async def model_ready(name: str, version: str | None = None) -> dict[str, Any]:
            card = repository.get(name, version).card
            return {"name": card.name, "ready": True, "warning": card.warning}

        @app.get(prefix + "/config", summary="Model configuration, as Triton's clients read it")
        async def model_config(name: str, version: str | None = None) -> dict[str, Any]:
            return repository.get(name, version).card.config()

        @app.get(prefix + "/stats", summary="Model statistics, as Triton's clients read them")
        async def model_statistics(name: str, version: str | None = None) -> dict[str, Any]:
            return {"model_stats": [statistics_of(repository.get(name, version).card)]}

    @app.get("/v1/models", summary="Names of the models (KServe v1)")
    async def names() -> dict[str, list[str]]:
        return {"models": sorted({model.card.name for model in repository.loaded()})}

    @app.get("/v1/models/{name}", summary="Whether the model is loaded (KServe v1)")
    async def v1_ready(name: str) -> dict[str, Any]:
        return {"name": repository.get(name).card.name, "ready": True}


def _add_repository_routes(app: FastAPI, repository: Repository, fleet: Fleet) -> None:
    @app.post("/v2/repository/index", summary="Models that are loaded or could be")
    async def index() -> list[dict[str, str]]:
        return repository.index()

    @app.post(
        "/v2/repository/models/{name}/load",
        summary="Load the newest version beside the old one, then switch",
        dependencies=[Depends(_own_origin)],
    )
    async def load(name: str) -> dict[str, Any]:
        model = await fleet.load(name)
        return {"name": model.card.name, "version": model.card.version}

    @app.post(
        "/v2/repository/models/{name}/unload",
        summary="Take a model out of service",
        dependencies=[Depends(_own_origin)],
    )
    async def unload(name: str) -> dict[str, str]:
        await fleet.unload(name)
        return {"name": name}


def _own_origin(request: Request) -> None:
    """Refuse what a browser sends for another site's page: loopback keeps no page of this machine's browser out."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        msg = f"a page of {origin} may not change what is served; help: send the request without a browser"
        raise ForeignOrigin(msg)


def _add_error_handlers(app: FastAPI) -> None:
    """Give every error the one form, ``{"error": …, "reason": …}``: clients of the protocols read no other."""

    @app.exception_handler(ServeError)
    async def ours(_request: Request, error: ServeError) -> JSONResponse:
        return _error(error.status, str(error), error.reason)

    @app.exception_handler(HTTPException)
    async def starlettes(request: Request, error: HTTPException) -> JSONResponse:
        found = MethodNotAllowed if error.status_code == MethodNotAllowed.status else NotFound
        response = _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}", found.reason)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(RequestValidationError)
    async def fastapis(_request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return _error(400, f"{where}: {first['msg']}", "invalid_request")

    @app.exception_handler(Exception)
    async def anything_else(_request: Request, error: Exception) -> JSONResponse:
        logger.error("unexpected", exc_info=error)
        return _error(500, "internal error; help: see the server's log", "internal")


def _error(status: int, message: str, reason: str) -> JSONResponse:
    return JSONResponse({"error": message, "reason": reason}, status_code=status)
