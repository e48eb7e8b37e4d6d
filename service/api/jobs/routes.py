"""Routes of jobs (list, get, events, cancel, delete) and of the service's capabilities."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AwareDatetime, Field
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from aps_contract import JobPage, JobState, JobView
from service.access.principals import Reader, Writer
from service.api.app_state import services_of
from service.api.events.hub import is_event_id, job_events
from service.api.events.streams import CountedEventSource
from service.api.jobs.views import retry_after
from service.api.openapi.fragments import headers, problems
from service.api.problems.errors import JobActive
from service.api.requests.headers import matches
from service.jobs import Wanted

router = APIRouter(prefix="/v1")


@router.get("/jobs", tags=["jobs"], responses=problems(401, 403, 422, 503))
def list_jobs(
    request: Request,
    who: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: Annotated[str | None, Query(pattern="^[0-9a-f-]{36}$", max_length=36)] = None,
    state: Annotated[
        list[JobState], Query(max_length=5, description="Only jobs in one of these states.")
    ] = [],  # noqa: B006  FastAPI copies it
    task: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Query(max_length=16, description="Only jobs of one of these tasks."),
    ] = [],  # noqa: B006
    created_after: Annotated[
        AwareDatetime | None, Query(description="Only jobs created at this time or later.")
    ] = None,
    created_before: Annotated[
        AwareDatetime | None, Query(description="Only jobs created before this time.")
    ] = None,
) -> JobPage:
    """Jobs, newest first. A filtered page may be short or empty although ``next`` leads on."""
    services = services_of(request)
    wanted = Wanted(frozenset(state), frozenset(task), created_after, created_before)
    page = services.store.page(limit, cursor, who.name, wanted)
    asked = [pair for pair in request.query_params.multi_items() if pair[0] != "cursor"]
    query = urlencode([*asked, ("cursor", page.cursor or "")])
    following = f"/v1/jobs?{query}" if page.cursor else None
    return JobPage(jobs=[services.view(job) for job in page.jobs], next=following)


@router.get(
    "/jobs/{job_id}",
    response_model=JobView,
    tags=["jobs"],
    responses={
        200: {
            "headers": headers(
                ETag="The job's version.", Retry_After="Suggested seconds until the next request."
            )
        },
        304: {"description": "Unchanged."},
        **problems(401, 403, 404, 503),
    },
)
def get_job(
    request: Request,
    response: Response,
    who: Reader,
    job_id: str,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Any:
    """One job."""
    services = services_of(request)
    job = services.job(job_id, who.name)
    shown = services.view(job)
    place = "" if shown.queue_position is None else f"-{shown.queue_position}"
    etag = f'"{job.version}{place}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if not job.state.terminal:
        headers["Retry-After"] = retry_after(job)
    if matches(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return shown


@router.get(
    "/jobs/{job_id}/events",
    response_class=EventSourceResponse,
    tags=["jobs"],
    responses={
        200: {
            "description": (
                "Events until the job ends; each ``id`` may be sent back as Last-Event-ID."
            ),
            "content": {"text/event-stream": {}},
        },
        **problems(401, 403, 404, 503),
    },
)
async def get_events(
    request: Request,
    who: Reader,
    job_id: str,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    """The job's history and what follows, as server-sent events ``status``, ``progress`` and
    ``done``.
    """
    services = services_of(request)
    await run_in_threadpool(services.job, job_id, who.name)
    after = last_event_id if last_event_id and is_event_id(last_event_id) else "0-0"
    return CountedEventSource(
        job_events(request.app.state.events, job_id, after), request.app.state.streams, who.name
    )


@router.post(
    "/jobs/{job_id}/cancel",
    status_code=202,
    tags=["jobs"],
    responses={
        200: {"description": "The job had already ended.", "model": JobView},
        **problems(401, 403, 404, 503),
    },
)
def cancel_job(request: Request, response: Response, who: Writer, job_id: str) -> JobView:
    """Cancels a queued job immediately and requests cancellation of a running one; 200 if the job
    had already ended.
    """
    services = services_of(request)
    services.job(job_id, who.name)
    if services.store.cancel(job_id) not in ("queued", "running"):
        response.status_code = 200
    return services.view(services.job(job_id, who.name))


@router.delete(
    "/jobs/{job_id}", status_code=204, tags=["jobs"], responses=problems(401, 403, 404, 409, 503)
)
def delete_job(request: Request, who: Writer, job_id: str) -> None:
    """Deletes a job and all of its files."""
    services = services_of(request)
    services.job(job_id, who.name)
    if services.store.delete(job_id) == "running":
        raise JobActive(f"Job '{job_id}' is running; cancel it first.")
    services.discard_files(job_id)
