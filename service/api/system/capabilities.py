"""What the service offers: ``GET /v1/capabilities``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from aps_core.capabilities import describe
from service.access.principals import Reader
from service.api.app_state import services_of
from service.api.jobs.availability import describe_operators, describe_priors
from service.api.openapi.fragments import problems

router = APIRouter(prefix="/v1")


@router.get("/capabilities", tags=["service"], responses=problems(401, 403, 503))
def get_capabilities(request: Request, who: Reader) -> dict[str, Any]:
    """Tasks, operators and priors with their JSON Schemas, the live workers, the queue, and the
    caller's principal.
    """
    services = services_of(request)
    settings = services.settings
    limits = {
        "max_upload_bytes": settings.max_upload_bytes,
        "max_upload_pixels": settings.max_upload_pixels,
        "max_share_seconds": settings.max_share_seconds,
    }
    described = describe()
    live = services.capable()
    described["operators"] = describe_operators(described["operators"], live)
    described["priors"] = describe_priors(described["priors"], settings.priors, live)
    jobs = services.store.load(settings.priors).jobs
    queue = {
        state: sum(number for (each, *_), number in jobs.items() if each == state)
        for state in ("queued", "running")
    }
    return {
        **described,
        "limits": limits,
        "workers": [worker.model_dump() for worker in live],
        "queue": queue,
        "principal": who.name,
    }
