"""Submitting a job: ``POST /v1/{task}``, as a form with files or as JSON."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Annotated

from fastapi import FastAPI, Header, Request, Response
from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from aps_contract import JobView
from aps_core.tasks import TaskSpec
from service.access.principals import Writer
from service.api.app_state import services_of
from service.api.events.hub import until_over
from service.api.jobs.accept import accept
from service.api.jobs.body import read_submission
from service.api.jobs.views import retry_after
from service.api.openapi import fragments
from service.api.problems.errors import Busy, TooManyStreams
from service.api.requests.headers import Preference, preference
from service.telemetry import tracing

log = logging.getLogger(__name__)

IdempotencyKey = Annotated[
    str | None,
    Header(
        description=(
            "Repeating a request with the same key within a day returns the same job instead of"
            " creating another."
        )
    ),
]
Prefer = Annotated[
    str | None,
    Header(
        description=(
            "'wait=N' waits up to N seconds (60 at most): 200 with the finished job, or 202 if"
            " it is not finished."
        )
    ),
]
CancelAfter = Annotated[
    str | None,
    Header(description="Deadline from now: 90s, 5m, 1h. A job not finished by then fails."),
]
TraceParent = Annotated[str | None, Header(description="W3C Trace Context; stored with the job.")]


def add_task(app: FastAPI, task: str, spec: type[TaskSpec]) -> None:
    """Adds ``POST /v1/{task}`` for a registered task."""

    async def submit(
        request: Request,
        who: Writer,
        idempotency_key: IdempotencyKey = None,
        prefer: Prefer = None,
        cancel_after: CancelAfter = None,
        traceparent: TraceParent = None,
    ) -> Response:
        services, asked = services_of(request), preference(prefer)
        async with AsyncExitStack() as files:  # keeps a form's files open until they are read
            submission = await read_submission(request, task, spec, who, files)
            with tracing.span(f"submit {task}", submission.traceparent, task=task) as span:
                job, replayed = await accept(
                    services, replace(submission, traceparent=span.traceparent)
                )
                span.note(job=job.id, prior=job.prior)
        if asked.wait_seconds:
            try:
                with request.app.state.streams.opened(who.name):
                    await until_over(request.app.state.events, job.id, asked.wait_seconds)
                job = await run_in_threadpool(services.shown, job.id, who.name)
            except (RedisError, TooManyStreams, Busy) as error:
                # the job is stored: an error response would make the client submit it again
                log.warning("Job %s: waiting for its end failed: %s", job.id, error)
                asked = Preference()
        headers = {"Location": job.urls["self"]}
        if not job.state.terminal:
            headers["Retry-After"] = retry_after(job)
        if replayed:
            headers["Idempotent-Replayed"] = "true"
        if asked.applied:
            headers["Preference-Applied"] = asked.applied
        status = 200 if job.state.terminal and asked.wait_seconds else 202
        return Response(job.model_dump_json(), status, headers, "application/json")

    accepted = fragments.headers(
        Location="The job.",
        Retry_After="Suggested seconds until the next request.",
        Idempotent_Replayed=(
            "'true' if an earlier request with the same Idempotency-Key created the job."
        ),
        Preference_Applied="The preferences that were applied.",
    )
    app.add_api_route(
        f"/v1/{task}",
        submit,
        methods=["POST"],
        status_code=202,
        response_model=JobView,
        summary=spec.summary(),
        operation_id=task,
        tags=["tasks"],
        responses={
            200: {"description": "The job ended within the wait time.", "model": JobView},
            202: {"description": "The job was accepted.", "headers": accepted},
            **fragments.problems(400, 401, 403, 409, 410, 413, 415, 422, 429, 503),
        },
        openapi_extra={"requestBody": fragments.request_body(spec)},
    )
