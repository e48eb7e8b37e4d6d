"""Endpoints for orchestrators: liveness, readiness and metrics."""

from __future__ import annotations

import anyio
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.api.app_state import services_of
from service.api.openapi.fragments import problems
from service.api.problems.errors import NoWorker

router = APIRouter(tags=["service"])


READY_SECONDS = 3
"""Time limit of the readiness check; orchestrators typically wait five seconds."""
_threads = CapacityLimiter(2)


@router.get("/livez")
async def livez() -> dict[str, str]:
    """Liveness: the process responds, even when all of its threads are blocked."""
    return {"status": "ok"}


@router.get("/readyz", responses=problems(503))
async def readyz(request: Request) -> dict[str, object]:
    """Readiness: the job store responds and every prior has a live worker."""
    services = services_of(request)
    try:
        with anyio.fail_after(READY_SECONDS):
            workers = await to_thread.run_sync(
                services.capable, limiter=_threads, abandon_on_cancel=True
            )
    except TimeoutError as error:
        raise RedisTimeoutError("The job store did not answer in time.") from error
    held = {worker.prior for worker in workers}
    if absent := set(services.settings.priors) - held:
        raise NoWorker(f"No worker holds: {', '.join(sorted(absent))}.")
    return {"status": "ready", "priors": sorted(held)}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request) -> Response:
    """Prometheus metrics of this process and of the queue."""
    queue = b"".join(
        generate_latest(registry) for registry in (REGISTRY, request.app.state.queue_metrics)
    )
    return Response(queue, media_type=CONTENT_TYPE_LATEST)
