"""Predicting a job before it is submitted: ``POST /v1/{task}/estimate``. Reads no picture."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

from aps_contract import EstimateRequest, EstimateView
from aps_core.errors import ImageTooLarge, InsufficientMemory, JobTooLong
from aps_core.tasks import PictureTaskSpec, TaskSpec
from aps_core.tasks.content import leaves_prior_open, with_priors
from aps_core.tasks.estimate import estimate as estimated
from service.access.principals import Reader
from service.api.app_state import Services, services_of
from service.api.jobs.accept import Draft, validated
from service.api.jobs.availability import computable, worker_for
from service.api.jobs.body import json_object
from service.api.openapi import fragments
from service.api.problems.errors import UnsupportedBody
from service.jobs import Terms, job_error


def add_estimate(app: FastAPI, task: str, spec: type[TaskSpec]) -> None:
    """Adds ``POST /v1/{task}/estimate`` for a registered task."""

    async def estimate(request: Request, who: Reader) -> EstimateView:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise UnsupportedBody(f"Content type {kind!r} is not accepted; send application/json.")
        asked = EstimateRequest.model_validate(json_object(await request.body()))
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
        responses=fragments.problems(400, 401, 403, 413, 415, 422, 429, 503),
        openapi_extra={"requestBody": fragments.estimate_body(spec)},
    )


def predict(
    services: Services, task: str, spec_json: dict[str, Any], image: tuple[int, int] | None
) -> EstimateView:
    """Predicts size and duration of a job for an upload of size ``image`` (width, height). If the
    prior depends on what the picture shows, that for photographs is assumed, if it is at hand.

    Raises:
        InvalidSpec, pydantic.ValidationError: the spec is invalid.
        PriorNotLoaded, WeightsMissing, NoWorker: no worker can compute it, or none now.
    """
    offered, live = services.settings.priors, services.capable()
    open_prior = leaves_prior_open(task, spec_json, offered)
    given = with_priors(spec_json, offered) if open_prior else [spec_json]
    specs = [validated(task, each) for each in given]
    spec, worker = computable(specs, lambda each: worker_for(each.prior, offered, live))
    pace, refusal = worker.seconds_per_token, None
    cost = estimated(spec, image, pace)
    try:
        Draft(spec, worker, Terms(), services.settings.max_job_seconds).cost(image)
    except (ImageTooLarge, InsufficientMemory, JobTooLong) as error:
        refusal = job_error(error)
    presets = spec.by_preset() if isinstance(spec, PictureTaskSpec) else {}
    return EstimateView(
        prior=spec.prior,
        output_size=cost.output,
        reduced_size=spec.reduced_size(image),
        tokens=cost.tokens,
        seconds=cost.seconds,
        refusal=refusal,
        seconds_by_preset={
            name: estimated(variant, image, pace).seconds for name, variant in presets.items()
        },
    )
