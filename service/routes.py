"""The HTTP interface: submit a job, follow it, fetch what it made."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from aps_core.capabilities import describe
from aps_core.tasks import PictureTaskSpec, TaskSpec
from service.availability import describe_priors
from service.events import job_events
from service.jobs import Job
from service.problems import MEDIA_TYPE, Gone, JobActive, MalformedBody, NotFound, Problem, UnsupportedBody
from service.services import Services, Submission
from service.uploads import from_data_uri
from service.views import JobPage, JobView

router = APIRouter(prefix="/v1")

PICTURES = ("image", "mask")
SERVED = {name: cls for name, cls in sorted(TaskSpec.family.items()) if issubclass(cls, PictureTaskSpec)}
"""Tasks with a route: those that take a picture and make one, as uploads, previews and results are pictures here."""
_EVENT_ID = re.compile(r"\d{1,20}-\d{1,20}")
MAX_SPEC_BYTES = 1_000_000
COMPONENT = "#/components/schemas/{model}"


def services_of(request: Request) -> Services:
    """The process's services."""
    services: Services = request.app.state.services
    return services


# -- submitting -----------------------------------------------------------------------------------


def add_task(app: FastAPI, task: str, spec: type[TaskSpec]) -> None:
    """Adds ``POST /v1/{task}`` for a registered task."""

    async def submit(request: Request, response: Response) -> JobView:
        submission = await _read_submission(request, task)
        services = services_of(request)
        job = await run_in_threadpool(services.submit, submission)
        response.headers["Location"] = f"/v1/jobs/{job.id}"
        response.headers["Retry-After"] = _retry_after(job)
        return await run_in_threadpool(services.view, job)

    app.add_api_route(
        f"/v1/{task}",
        submit,
        methods=["POST"],
        status_code=202,
        summary=spec.summary(),
        operation_id=task,
        tags=["tasks"],
        responses=problems(400, 413, 415, 422, 503),
        openapi_extra={"requestBody": _request_body(spec)},
    )


async def _read_submission(request: Request, task: str) -> Submission:
    """Reads either kind of body.

    Raises:
        UnsupportedBody, MalformedBody: it is neither.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        spec, pictures = await _read_form(request)
    elif kind == "application/json":
        spec = _json_object(await request.body(), "The body")
        pictures = {name: from_data_uri(spec.pop(name), name) for name in PICTURES if spec.get(name) is not None}
        spec.pop("mask", None)
    else:
        raise UnsupportedBody(f"Content type {kind!r} is not accepted; send multipart/form-data or application/json.")
    if "image" not in pictures:
        raise MalformedBody("The picture is missing: send it as the part 'image', or in JSON as the data URI 'image'.")
    if spec.get("type", task) != task:
        raise MalformedBody(f"The spec's type is {spec['type']!r}, but this is the task '{task}'.")
    return Submission(task, spec, pictures, request.state.request_id)


async def _read_form(request: Request) -> tuple[dict[str, Any], dict[str, bytes]]:
    try:
        async with request.form(max_files=2, max_fields=1, max_part_size=MAX_SPEC_BYTES) as form:
            return await _parts(form)
    except HTTPException as error:
        raise MalformedBody(f"The form cannot be read: {error.detail}") from error


async def _parts(form: FormData) -> tuple[dict[str, Any], dict[str, bytes]]:
    spec: dict[str, Any] = {}
    pictures: dict[str, bytes] = {}
    for name, part in form.multi_items():
        if name in PICTURES and isinstance(part, UploadFile):
            pictures[name] = await part.read()
        elif name == "spec":
            spec = _json_object(await part.read() if isinstance(part, UploadFile) else part.encode(), "The part 'spec'")
        else:
            raise MalformedBody(f"Unexpected part {name!r}; send files 'image' and 'mask' and the text 'spec'.")
    return spec, pictures


def _json_object(text: bytes, what: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"{what} is not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise MalformedBody(f"{what} must be a JSON object, not {type(data).__name__}.")
    return data


def _request_body(spec: type[TaskSpec]) -> dict[str, Any]:
    """OpenAPI of the two forms of the body, from the library's own schema."""
    schema = spec.model_json_schema(ref_template=COMPONENT)
    schema.pop("$defs", None)
    uri = {"type": "string", "description": "data:image/...;base64,..."}
    file = {"type": "string", "format": "binary"}
    inline = {**schema, "properties": {"image": uri, "mask": uri, **schema["properties"]}, "required": ["image", *schema.get("required", [])]}
    form = {"type": "object", "properties": {"image": file, "mask": file, "spec": schema}, "required": ["image", "spec"]}
    content = {
        "multipart/form-data": {"schema": form, "encoding": {"spec": {"contentType": "application/json"}}},
        "application/json": {"schema": inline},
    }
    return {"required": True, "content": content}


def components() -> dict[str, Any]:
    """OpenAPI schemas that the routes above refer to by name."""
    named: list[type[BaseModel]] = [Problem, *SERVED.values()]
    schemas = {cls: cls.model_json_schema(ref_template=COMPONENT) for cls in named}
    definitions = {name: schema for described in schemas.values() for name, schema in described.pop("$defs", {}).items()}
    return {**definitions, "Problem": schemas[Problem]}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI of the problems a route may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": COMPONENT.format(model="Problem")}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


# -- following ------------------------------------------------------------------------------------


@router.get("/jobs", tags=["jobs"], responses=problems(422, 503))
def list_jobs(
    request: Request, limit: Annotated[int, Query(ge=1, le=100)] = 20, cursor: Annotated[str | None, Query(pattern="^[0-9a-f-]{36}$")] = None
) -> JobPage:
    """Jobs, newest first."""
    services = services_of(request)
    page = services.store.page(limit, cursor)
    following = f"/v1/jobs?limit={limit}&cursor={page.cursor}" if page.cursor else None
    return JobPage(jobs=[services.view(job) for job in page.jobs], next=following)


@router.get("/jobs/{job_id}", response_model=JobView, tags=["jobs"], responses={304: {"description": "Unchanged."}, **problems(404, 503)})
def get_job(request: Request, response: Response, job_id: str, if_none_match: Annotated[str | None, Header()] = None) -> Any:
    """One job."""
    services = services_of(request)
    job = services.job(job_id)
    shown = services.view(job)
    etag = f'"{job.version}-{shown.queue_position}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if not job.state.terminal:
        headers["Retry-After"] = _retry_after(job)
    if if_none_match == etag:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return shown


@router.get("/jobs/{job_id}/events", response_class=EventSourceResponse, tags=["jobs"], responses=problems(404, 503))
async def get_events(request: Request, job_id: str, last_event_id: Annotated[str | None, Header()] = None) -> EventSourceResponse:
    """The job's history and what follows, as server-sent events ``status``, ``progress`` and ``done``."""
    services = services_of(request)
    await run_in_threadpool(services.job, job_id)
    after = last_event_id if last_event_id and _EVENT_ID.fullmatch(last_event_id) else "0-0"
    return EventSourceResponse(job_events(request.app.state.redis, services, job_id, after), ping=15, send_timeout=30)


@router.post("/jobs/{job_id}/cancel", status_code=202, tags=["jobs"], responses=problems(404, 503))
def cancel_job(request: Request, response: Response, job_id: str) -> JobView:
    """Cancels a waiting job at once, a running one after its current step; 200 when it was over already."""
    services = services_of(request)
    before = services.store.cancel(job_id)
    job = services.job(job_id)
    if before not in ("queued", "running"):
        response.status_code = 200
    return services.view(job)


@router.delete("/jobs/{job_id}", status_code=204, tags=["jobs"], responses=problems(404, 409, 503))
def delete_job(request: Request, job_id: str) -> None:
    """Removes a job and everything it stored."""
    services = services_of(request)
    outcome = services.store.delete(job_id)
    if outcome == "missing":
        raise NotFound(f"There is no job '{job_id}'.")
    if outcome == "running":
        raise JobActive(f"Job '{job_id}' is running; cancel it first.")
    services.artifacts.delete(job_id)


# -- fetching -------------------------------------------------------------------------------------


@router.get("/jobs/{job_id}/previews/{step}", response_class=Response, tags=["files"], responses=problems(404, 410, 422, 503))
def get_preview(request: Request, job_id: str, step: int) -> Response:
    """The estimate after a reverse step, as a JPEG."""
    services = services_of(request)
    job = services.job(job_id)
    file = services.store.preview_file(job_id, step)
    if file is None:
        raise NotFound(f"Job '{job_id}' has no preview of step {step} (yet).")
    return _file(request, job, file, "image/jpeg", f"{step}.jpg")


@router.get("/jobs/{job_id}/artifacts/{name}", response_class=Response, tags=["files"], responses=problems(404, 410, 503))
def get_artifact(request: Request, job_id: str, name: str) -> Response:
    """A file of the job: ``measurement.png``, ``mask.png``, ``result.png``, ``result.json``, ..."""
    job = services_of(request).job(job_id)
    artifact = job.artifact(name)
    if artifact is None:
        raise NotFound(f"Job '{job_id}' has no artifact '{name}' (yet).")
    return _file(request, job, artifact.file, artifact.media_type, name)


@router.get("/capabilities", tags=["service"], responses=problems(503))
def capabilities(request: Request) -> dict[str, Any]:
    """Tasks, operators and priors with their JSON Schemas, and the workers that live."""
    services = services_of(request)
    settings = services.settings
    limits = {"max_upload_bytes": settings.max_upload_bytes, "max_upload_pixels": settings.max_upload_pixels}
    described = describe()
    described["tasks"] = [task for task in described["tasks"] if task["type"] in SERVED]
    live = services.workers.live()
    described["priors"] = describe_priors(described["priors"], settings.priors, live)
    return {**described, "limits": limits, "workers": [worker.model_dump() for worker in live]}


def _file(request: Request, job: Job, file: str, media_type: str, name: str) -> Response:
    """A stored file; its name is its content's hash, and so its entity tag."""
    etag = f'"{file.partition(".")[0]}"'
    headers = {
        "ETag": etag,
        "Cache-Control": "private, max-age=3600, immutable",
        "Content-Disposition": f'inline; filename="{job.id}-{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    try:
        content = services_of(request).artifacts.get(job.id, file)
    except FileNotFoundError as error:
        raise Gone(f"'{name}' of job '{job.id}' has expired.") from error
    return Response(content, headers=headers, media_type=media_type)


def _retry_after(job: Job) -> str:
    """Seconds until asking again makes sense: about a step's time."""
    return str(max(1, round(job.progress.seconds if job.progress else 1)))
