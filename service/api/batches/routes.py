"""Routes of batches: submit, follow, cancel, delete, and download the results as a ZIP."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from zipfile import ZIP_STORED, ZipFile

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from aps_contract import BatchView, JobState
from service.access.principals import Reader, Writer
from service.api.app_state import JOB_ID, Services, services_of
from service.api.batches.accept import accept_batch
from service.api.batches.body import read_batch
from service.api.batches.views import view_batch
from service.api.jobs.accept import Submission
from service.api.jobs.body import OPTIONS, allowed
from service.api.jobs.submit import CancelAfter, IdempotencyKey, TraceParent
from service.api.openapi import fragments
from service.api.problems.errors import JobActive, NotFound
from service.api.requests.headers import cancel_after as checked_deadline
from service.api.requests.headers import idempotency_key as checked_key
from service.api.requests.headers import trace_parent
from service.jobs import ArtifactStore, Batch, Job

router = APIRouter(prefix="/v1", tags=["batches"])


@router.post(
    "/batches",
    status_code=202,
    response_model=BatchView,
    responses={
        202: {
            "description": "At least one picture was accepted.",
            "headers": fragments.headers(
                Location="The batch.",
                Idempotent_Replayed="'true' if the batch already existed.",
            ),
        },
        **fragments.problems(400, 401, 403, 409, 410, 413, 415, 422, 429, 503),
    },
    openapi_extra={"requestBody": fragments.batch_body()},
)
async def submit_batch(
    request: Request,
    who: Writer,
    idempotency_key: IdempotencyKey = None,
    cancel_after: CancelAfter = None,
    traceparent: TraceParent = None,
) -> Response:
    """Restores several pictures with one spec; each becomes a job."""
    services = services_of(request)
    async with AsyncExitStack() as files:  # keeps a form's files open until they are read
        sent = await read_batch(request, who, files)
        shared = Submission(
            "restore",
            sent.spec,
            {},
            tenant=who.name,
            quota=who.quota,
            request_id=request.state.request_id,
            traceparent=trace_parent(traceparent),
            idempotency_key=checked_key(idempotency_key),
            cancel_after_seconds=checked_deadline(cancel_after),
            options=allowed({name: getattr(sent, name) for name in OPTIONS}, who),
        )
        batch, replayed = await accept_batch(services, shared, sent.images)
    shown = await run_in_threadpool(_shown, services, batch)
    headers = {"Location": shown.urls["self"], "Retry-After": "1"}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(shown.model_dump_json(), 202, headers, "application/json")


@router.get("/batches/{batch_id}", responses=fragments.problems(401, 403, 404, 503))
def get_batch(request: Request, response: Response, who: Reader, batch_id: str) -> BatchView:
    """A batch: how far it is, and the state and result of every picture."""
    services = services_of(request)
    shown = _shown(services, _batch(services, batch_id, who.name))
    response.headers["Cache-Control"] = "no-cache"
    if not shown.finished:
        response.headers["Retry-After"] = "1"
    return shown


@router.post(
    "/batches/{batch_id}/cancel", status_code=202, responses=fragments.problems(401, 403, 404, 503)
)
def cancel_batch(request: Request, who: Writer, batch_id: str) -> BatchView:
    """Cancels the batch's queued jobs immediately and requests cancellation of running ones."""
    services = services_of(request)
    found = _batch(services, batch_id, who.name)
    for job_id in found.jobs:
        services.store.cancel(job_id)
    return _shown(services, found)


@router.delete(
    "/batches/{batch_id}", status_code=204, responses=fragments.problems(401, 403, 404, 409, 503)
)
def delete_batch(request: Request, who: Writer, batch_id: str) -> None:
    """Deletes a batch with its jobs and all of their files, unless one is running."""
    services = services_of(request)
    found = _batch(services, batch_id, who.name)
    active = JobActive(f"A job of batch '{batch_id}' is running; cancel the batch first.")
    if any(job and job.state is JobState.RUNNING for job in services.store.records(found.jobs)):
        raise active
    for job_id in found.jobs:
        if services.store.delete(job_id) == "running":  # it started after the look above
            raise active
        services.discard_files(job_id)
    services.batches.delete(found.id)


@router.get(
    "/batches/{batch_id}/results.zip",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The archive.", "content": {"application/zip": {}}},
        **fragments.problems(401, 403, 404, 503),
    },
)
def get_batch_results(request: Request, who: Reader, batch_id: str) -> StreamingResponse:
    """The result files of all pictures that are done, as a ZIP: ``001-result.png``,
    ``001-result.json``, ...; the numbers are those of the pictures.
    """
    services = services_of(request)
    found = _batch(services, batch_id, who.name)
    now = services.store.now()
    records = dict(zip(found.jobs, services.store.records(found.jobs), strict=True))
    done = [
        (number, job)
        for number, entry in enumerate(found.entries, 1)
        if (job := records.get(entry.job or "")) is not None
        and job.state is JobState.SUCCEEDED
        and not job.expired(now)
    ]
    if not done:
        if any(job and not job.state.terminal for job in records.values()):
            raise NotFound(f"Batch '{batch_id}' has no results yet; its jobs have not ended.")
        raise NotFound(f"Batch '{batch_id}' has no results, or they have expired.")
    name = f'attachment; filename="{found.id}.zip"'
    return StreamingResponse(
        _zipped(services.artifacts, done), 200, {"Content-Disposition": name}, "application/zip"
    )


class _Sink(io.RawIOBase):
    """Buffers the output of a ZIP writer until :meth:`take` is called."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # a ZIP writer sends bytes
        self.written += data
        return len(data)

    def take(self) -> bytes:
        """What was written since the last call."""
        taken, self.written = bytes(self.written), bytearray()
        return taken


def _zipped(artifacts: ArtifactStore, jobs: Sequence[tuple[int, Job]]) -> Iterator[bytes]:
    """The archive in parts, so that one file at a time is in memory. Its entries are not
    compressed, as pictures are already.
    """
    sink = _Sink()
    with ZipFile(sink, "w", ZIP_STORED) as archive:
        for number, job in jobs:
            for file in job.artifacts:
                archive.writestr(f"{number:03d}-{file.name}", artifacts.get(job.id, file.file))
                yield sink.take()
    yield sink.take()


def _batch(services: Services, batch_id: str, tenant: str) -> Batch:
    """A tenant's batch.

    Raises:
        NotFound: it does not exist or belongs to another tenant; the response is the same.
    """
    found = services.batches.get(batch_id) if JOB_ID.fullmatch(batch_id) else None
    if found is None or found.tenant != tenant:
        raise NotFound(f"There is no batch '{batch_id[:80]}'.")
    return found


def _shown(services: Services, batch: Batch) -> BatchView:
    return view_batch(batch, services.store.records(batch.jobs))
