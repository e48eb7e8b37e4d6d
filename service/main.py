"""The FastAPI application: ``uvicorn --factory service.main:create_app``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis as AsyncRedis
from starlette.staticfiles import StaticFiles

import aps_core
from service import health, problems, routes
from service.middleware import BodyLimit, RequestContext
from service.services import Services
from service.settings import Settings
from service.sweeper import Sweeper

UI = Path(__file__).parent / "ui"


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application for these settings, by default those of the environment."""
    settings = settings or Settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app = FastAPI(title="Anchored posterior sampling", version=aps_core.__version__, lifespan=_lifespan, redoc_url=None)
    app.state.settings = settings
    problems.install(app)
    for task, spec in routes.SERVED.items():
        routes.add_task(app, task, spec)
    app.include_router(routes.router)
    app.include_router(health.router)
    _add_studio(app)
    app.openapi = partial(_openapi, app)  # type: ignore[method-assign]
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    return app


def _add_studio(app: FastAPI) -> None:
    """Serves the studio's files, one route each: a mount at ``/`` would swallow the 404s and 405s of the API."""
    files = StaticFiles(directory=UI)

    async def serve(request: Request) -> Response:
        return await files.get_response(request.url.path.lstrip("/") or "index.html", request.scope)

    names = sorted(path.relative_to(UI).as_posix() for path in UI.rglob("*") if path.is_file())
    for name in ["", *names]:
        app.add_route(f"/{name}", serve, methods=["GET", "HEAD"], include_in_schema=False)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description, with the schemas that come from the registry."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        described["components"]["schemas"].update(routes.components())
    return app.openapi_schema or {}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    services = app.state.services = Services.open(settings)
    app.state.redis = AsyncRedis.from_url(settings.redis_url, socket_timeout=10)
    app.state.queue_metrics = CollectorRegistry()
    app.state.queue_metrics.register(health.QueueMetrics(services))
    sweeper = Sweeper(settings, services.store, services.artifacts, services.bell)
    sweeper.start()
    try:
        yield
    finally:
        sweeper.stop()
        await app.state.redis.aclose()
        services.close()
