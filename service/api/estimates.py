"""Predicting a job before it is submitted: ``POST /v1/{task}/estimate``. Reads no picture."""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from aps_core.tasks import TaskSpec
from service.access.principals import Reader
from service.api import openapi
from service.api.accept import predict
from service.api.app_state import services_of
from service.api.errors import UnsupportedBody
from service.api.submit import json_object
from service.api.views import EstimateRequest, EstimateView


def add_estimate(app: FastAPI, task: str, spec: type[TaskSpec]) -> None:
    """Adds ``POST /v1/{task}/estimate`` for a registered task."""

    async def estimate(request: Request, who: Reader) -> EstimateView:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise UnsupportedBody(f"Content type {kind!r} is not accepted; send application/json.")
        asked = EstimateRequest.model_validate(json_object(await request.body(), "The body"))
        return await run_in_threadpool(
            predict, services_of(request), task, asked.spec, asked.image_size
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
        openapi_extra={"requestBody": openapi.estimate_body(spec)},
    )
