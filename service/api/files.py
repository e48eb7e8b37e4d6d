"""Upload of pictures, for later jobs or for a diagnosis, and download of job files with ranges,
conditional requests and digests.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import APIRouter, Header, Request, Response
from starlette.responses import StreamingResponse

from aps_core.identify.diagnosis import Diagnosis
from aps_core.tasks.content import specialised
from service.access.principals import Reader, Writer
from service.api.app_state import services_of
from service.api.errors import Gone, NotFound, UnsupportedBody
from service.api.headers import RangeNotSatisfiable, byte_range, matches
from service.api.openapi import headers, problems
from service.api.views import StoredPicture
from service.jobs import Job
from service.uploads.upload import CHUNK_BYTES, MEMORY_BYTES

router = APIRouter(prefix="/v1", tags=["files"])

IfNoneMatch = Annotated[
    str | None, Header(description="Entity tags in the client's cache; 304 if one matches.")
]
Range = Annotated[
    str | None,
    Header(alias="range", description="bytes=FIRST-LAST: returns this part of the file."),
]
IfRange = Annotated[
    str | None,
    Header(
        description="Entity tag the range applies to; on a mismatch the whole file is returned."
    ),
]

_WHOLE = headers(
    ETag="The content's SHA-256.",
    Repr_Digest="The content's SHA-256 (RFC 9530).",
    Accept_Ranges="bytes",
)
_FILE: dict[str, Any] = {
    "image/png": {},
    "image/jpeg": {},
    "application/json": {},
    "application/octet-stream": {},
}
FILE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "headers": _WHOLE, "content": _FILE},
    206: {
        "description": "The requested part.",
        "headers": headers(Content_Range="Position of the part in the file."),
        "content": _FILE,
    },
    304: {"description": "Unchanged."},
    **problems(401, 403, 404, 410, 416, 503),
}


@router.get(
    "/jobs/{job_id}/previews/current",
    response_class=Response,
    responses={
        200: {"description": "The estimate.", "content": {"image/jpeg": {}}},
        204: {"description": "There is none at present."},
        **problems(401, 403, 404, 503),
    },
)
def get_current_preview(request: Request, who: Reader, job_id: str) -> Response:
    """The estimate within the current reverse step, as a JPEG of at most 768 pixels a side. It is
    renewed about once a second, and dropped when the step ends.
    """
    services = services_of(request)
    jpeg = services.store.current_preview(services.job(job_id, who.name).id)
    sent = {"Cache-Control": "no-store"}
    if jpeg is None:
        return Response(status_code=204, headers=sent)
    return Response(jpeg, headers=sent, media_type="image/jpeg")


@router.get(
    "/jobs/{job_id}/previews/{step}",
    response_class=Response,
    responses={**FILE_RESPONSES, **problems(422)},
)
def get_preview(
    request: Request, who: Reader, job_id: str, step: int, if_none_match: IfNoneMatch = None
) -> Response:
    """The estimate after a reverse step, as a JPEG."""
    return preview_response(request, services_of(request).job(job_id, who.name), step)


_PICTURE = {
    kind: {"schema": {"type": "string", "format": "binary"}}
    for kind in ("image/png", "image/jpeg", "image/webp", "application/octet-stream")
}


@router.post(
    "/files",
    status_code=201,
    responses=problems(400, 401, 403, 413, 415, 422, 429, 503),
    openapi_extra={"requestBody": {"required": True, "content": _PICTURE}},
)
async def store_picture(request: Request, who: Writer) -> StoredPicture:
    """Stores a picture, sent as the request body. Later jobs refer to it by its hash: ``"image":
    "sha256:..."``.
    """
    async with picture_body(request) as body:
        return await services_of(request).pictures.keep(body, who.name, who.quota.max_stored_bytes)


@router.post(
    "/diagnose",
    tags=["tasks"],
    responses=problems(400, 401, 403, 413, 415, 422, 429, 503),
    openapi_extra={"requestBody": {"required": True, "content": _PICTURE}},
)
async def post_diagnose(request: Request, who: Writer) -> Diagnosis:
    """Tells what seems to have happened to a picture, sent as the request body, and proposes a
    restore job, with a prior specialised in such pictures. Nothing is stored.
    """
    services = services_of(request)
    async with picture_body(request) as body:
        found = await services.pictures.diagnose(body, who.name)
    return found.proposing(
        specialised(found.shows_document, found.proposal or {}, services.settings.priors)
    )


@asynccontextmanager
async def picture_body(request: Request) -> AsyncIterator[BinaryIO]:
    """The request's body, which is a picture, in a temporary file.

    Raises:
        UnsupportedBody: the content type is not that of a picture.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _PICTURE:
        raise UnsupportedBody(
            f"Content type {kind!r} is not accepted; send the picture as the request body, with one"
            f" of {', '.join(_PICTURE)}."
        )
    with SpooledTemporaryFile(max_size=MEMORY_BYTES) as body:
        async for chunk in request.stream():
            body.write(chunk)
        yield cast(BinaryIO, body)


@router.get("/jobs/{job_id}/artifacts/{name}", response_class=Response, responses=FILE_RESPONSES)
def get_artifact(
    request: Request,
    who: Reader,
    job_id: str,
    name: str,
    if_none_match: IfNoneMatch = None,
    range_: Range = None,
    if_range: IfRange = None,
) -> Response:
    """A file of the job: ``measurement.png``, ``mask.png``, ``result.png``, ``result.json``, ..."""
    return artifact_response(request, services_of(request).job(job_id, who.name), name)


def preview_response(request: Request, job: Job, step: int) -> Response:
    """The preview of a step.

    Raises:
        NotFound: the step has none.
        Gone: it has expired.
    """
    file = services_of(request).store.preview_file(job.id, step)
    if file is None:
        raise NotFound(f"Job '{job.id}' has no preview of step {step}.")
    return _file(request, job, file, "image/jpeg", f"{step}.jpg")


def artifact_response(request: Request, job: Job, name: str) -> Response:
    """A file of the job.

    Raises:
        NotFound: the job has none of this name.
        Gone: it has expired.
        RangeNotSatisfiable: the requested range does not exist.
    """
    artifact = job.artifact(name)
    if artifact is None:
        yet = "" if job.state.terminal else f" yet; it is {job.state}"
        raise NotFound(f"Job '{job.id}' has no artifact '{name}'{yet}.")
    return _file(request, job, artifact.file, artifact.media_type, name)


def _file(request: Request, job: Job, file: str, media_type: str, name: str) -> Response:
    """Response with a stored file; the content hash in its name is the entity tag.

    Raises:
        Gone: the file has expired.
        RangeNotSatisfiable: the requested range does not exist.
    """
    sha256 = file.partition(".")[0]
    etag = f'"{sha256}"'
    sent = {
        "ETag": etag,
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=3600, immutable",
        "Content-Disposition": f'inline; filename="{job.id}-{name}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    gone = Gone(f"'{name}' of job '{job.id}' has expired.")
    if job.expires_at is not None and job.expired(services_of(request).store.now()):
        raise gone
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=sent)
    try:
        opened, size = services_of(request).artifacts.open(job.id, file)
    except FileNotFoundError as error:
        raise gone from error
    asked = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    try:
        part = byte_range(asked, size)
    except RangeNotSatisfiable:
        opened.close()
        raise
    first, end = part or (0, size)
    status = 200 if part is None else 206
    if part is not None:
        sent["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    opened.seek(first)
    if end - first <= CHUNK_BYTES:
        with opened:
            return Response(opened.read(end - first), status, headers=sent, media_type=media_type)
    sent["Content-Length"] = str(end - first)
    return StreamingResponse(_chunks(opened, end - first), status, sent, media_type)


def _chunks(opened: BinaryIO, left: int) -> Iterator[bytes]:
    """Reads the file in chunks, as results may be large and clients slow and numerous."""
    with opened:
        while left > 0 and (chunk := opened.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
