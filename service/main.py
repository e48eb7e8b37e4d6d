"""The FastAPI application: ``uvicorn --factory service.main:create_app``."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as AsyncRedis
from starlette.staticfiles import StaticFiles

import aps_core
from aps_core.tasks import TaskSpec
from service.access.host_guard import HostGuard
from service.access.start import check_start
from service.api.app_state import Services
from service.api.batches import routes as batches
from service.api.completions import routes as completions
from service.api.events import webhooks
from service.api.events.hub import EventHub
from service.api.events.streams import Streams, most_streams
from service.api.files import routes as files
from service.api.jobs import estimates, submit
from service.api.jobs import routes as jobs
from service.api.middleware import RequestContext
from service.api.openapi import document
from service.api.openapi.docs import add_docs
from service.api.problems import handlers
from service.api.requests.bodies import BodyLimit
from service.api.shares import routes as shares
from service.api.system import capabilities, health, sessions
from service.dispatch.sweeper import Sweeper
from service.settings import Settings
from service.telemetry import build, logs, tracing
from service.telemetry.queue_metrics import QueueMetrics
from service.webhooks.sender import send_webhooks

UI = Path(__file__).parent / "ui"


def create_app(settings: Settings | None = None) -> FastAPI:
    """Creates the application; ``settings`` default to the environment's."""
    settings = settings or Settings()
    logs.configure(settings.log_level, settings.log_format)
    build.describe()
    app = FastAPI(
        title="Anchored posterior sampling",
        version=aps_core.__version__,
        lifespan=_lifespan,
        generate_unique_id_function=lambda route: route.name,
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    handlers.install(app)
    for task in sorted(TaskSpec.family):
        submit.add_task(app, task, TaskSpec.named(task))
        estimates.add_estimate(app, task, TaskSpec.named(task))
    for part in (
        jobs.router,
        capabilities.router,
        batches.router,
        completions.router,
        files.router,
        webhooks.router,
        sessions.router,
        shares.router,
        health.router,
    ):
        app.include_router(part)
    add_docs(app)
    _add_studio(app)
    app.openapi = partial(document.describe, app)  # type: ignore[method-assign]
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(HostGuard, settings=settings)
    app.add_middleware(RequestContext)
    return app


def _add_studio(app: FastAPI) -> None:
    """Serves the studio's files with one route each: a mount at ``/`` would mask the API's 404 and
    405 responses.
    """
    files = StaticFiles(directory=UI)

    async def serve(request: Request) -> Response:
        return await files.get_response(request.url.path.lstrip("/") or "index.html", request.scope)

    names = sorted(path.relative_to(UI).as_posix() for path in UI.rglob("*") if path.is_file())
    for name in ["", *names]:
        app.add_route(f"/{name}", serve, methods=["GET", "HEAD"], include_in_schema=False)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    services = app.state.services = Services.open(settings)
    check_start(settings, services.keys)
    tracing.configure("api")
    services.decoder.start()
    most = most_streams()
    app.state.streams = Streams(most, settings.max_streams if settings.auth_required else most)
    redis = AsyncRedis(
        connection_pool=BlockingConnectionPool.from_url(
            settings.redis_url, socket_timeout=10, max_connections=8, timeout=10
        )
    )
    app.state.events = EventHub(redis, services)
    hub = asyncio.create_task(app.state.events.run())
    app.state.queue_metrics = CollectorRegistry()
    app.state.queue_metrics.register(QueueMetrics(services))
    sweeper = Sweeper(settings, services.store, services.artifacts, services.notifier)
    sweeper.start()
    sender = asyncio.create_task(send_webhooks(settings)) if settings.send_webhooks else None
    gc.collect()
    gc.freeze()  # excludes long-lived start-up objects from later collections
    try:
        yield
    finally:
        sweeper.stop()
        tasks = [task for task in (hub, sender) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await redis.aclose(close_connection_pool=True)
        services.close()
        tracing.stop()
        gc.unfreeze()
