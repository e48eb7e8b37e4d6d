"""Routes of files: upload of pictures, for later jobs or for a diagnosis, and download."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from fastapi import APIRouter, Request, Response

from aps_contract import StoredPicture
from aps_core.identify.diagnosis import Diagnosis
from aps_core.tasks.content import specialised
from service.access.principals import Reader, Writer
from service.api.app_state import services_of
from service.api.files.responses import (
    FILE_RESPONSES,
    IfNoneMatch,
    IfRange,
    Range,
    artifact_response,
    preview_response,
)
from service.api.openapi.fragments import problems
from service.api.problems.errors import UnsupportedBody
from service.uploads.upload import MEMORY_BYTES

router = APIRouter(prefix="/v1", tags=["files"])


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
