"""Responses with a file of a job, with ranges, conditional requests and digests."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

from fastapi import Header, Request, Response
from starlette.responses import StreamingResponse

from service.api.app_state import services_of
from service.api.openapi.fragments import headers, problems
from service.api.problems.errors import Gone, NotFound
from service.api.requests.headers import RangeNotSatisfiable, byte_range, matches
from service.jobs import Job
from service.uploads.upload import CHUNK_BYTES

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
