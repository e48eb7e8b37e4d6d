"""Predicting a job before it is submitted: ``POST /v1/{task}/estimate``. Reads no picture."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from aps_core.tasks import TaskSpec
from service.access.principals import Reader
from service.api import examples, openapi
from service.api.app_state import services_of
from service.api.problems import UnsupportedBody
from service.api.submit import json_object
from service.api.views import EstimateView

MAX_SIDE = 100_000
"""Maximum width and height in pixels of a picture to be estimated."""

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class EstimateRequest(BaseModel):
    """A job's spec, and the size of the picture that would be sent with it."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] = Field({}, description="The task's spec, as at submission.")
    image_size: tuple[Side, Side] | None = Field(
        None, description="Width and height of the picture 'image' in pixels; null without one."
    )


def add_estimate(app: FastAPI, task: str, spec: type[TaskSpec]) -> None:
    """Adds ``POST /v1/{task}/estimate`` for a registered task."""

    async def estimate(request: Request, who: Reader) -> EstimateView:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise UnsupportedBody(f"Content type {kind!r} is not accepted; send application/json.")
        asked = EstimateRequest.model_validate(json_object(await request.body(), "The body"))
        return await run_in_threadpool(
            services_of(request).estimate, task, asked.spec, asked.image_size
        )

    app.add_api_route(
        f"/v1/{task}/estimate",
        estimate,
        methods=["POST"],
        summary=f"Predict size and duration of a '{task}' job",
        description="Submits nothing and reads no picture.",
        operation_id=f"estimate_{task}",
        tags=["tasks"],
        responses=openapi.problems(400, 401, 403, 413, 415, 422, 429, 503),
        openapi_extra={"requestBody": _body(spec)},
    )


def _body(spec: type[TaskSpec]) -> dict[str, Any]:
    schema = EstimateRequest.model_json_schema(ref_template=openapi.COMPONENT)
    schema["title"] = f"{spec.__name__.removesuffix('Spec')}EstimateRequest"
    schema["properties"]["spec"] = openapi.component(spec)
    example = examples.SPECS.get(str(spec.model_fields["type"].default))
    if example is not None:
        size = {"image_size": [697, 472]} if spec.pictures.get("image") else {}
        schema["examples"] = [{"spec": example, **size}]
    return {"required": True, "content": {"application/json": {"schema": schema}}}
