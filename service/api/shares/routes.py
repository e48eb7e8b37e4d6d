"""Routes of links to results: make and end them, and read the one result a link leads to."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from aps_contract import LinkView, SharedView, ShareRequest
from service.access.links import COOKIE, MAX_LINKS, Guest, digest, new_token
from service.access.principals import Writer
from service.api.app_state import services_of
from service.api.events.hub import with_link
from service.api.files.responses import (
    FILE_RESPONSES,
    IfNoneMatch,
    IfRange,
    Range,
    artifact_response,
    preview_response,
)
from service.api.openapi.fragments import headers, problems
from service.api.problems.errors import Gone, NothingToShare, SharingDisabled
from service.api.shares.views import shared_base, shared_view
from service.api.system.sessions import over_https

PAGE = "/shared.html"
"""The page that shows a shared result; it reads job and token from the address's fragment."""
MAX_EVENTS = 4000
"""More than the events kept of a job."""

router = APIRouter(prefix="/v1", tags=["sharing"])


@router.post(
    "/jobs/{job_id}/share",
    status_code=201,
    responses=problems(400, 401, 403, 404, 409, 410, 422, 429, 503),
)
def share_result(
    request: Request,
    response: Response,
    who: Writer,
    job_id: str,
    wanted: Annotated[ShareRequest | None, Body()] = None,
) -> LinkView:
    """Makes a link to a job's result. Whoever has it can read the job's spec and files, without an
    API key, until the link ends. The address is shown only once.
    """
    services = services_of(request)
    services.job(job_id, who.name)
    most = services.settings.max_share_seconds
    if not most:
        raise SharingDisabled("This service makes no links to results (APS_MAX_SHARE_SECONDS=0).")
    asked = wanted.seconds if wanted and wanted.seconds else most
    token = new_token()
    until = services.store.share(job_id, digest(token), min(asked, most), MAX_LINKS)
    if until == "expired":
        raise Gone(f"The files of job '{job_id}' have expired.")
    if until == "no result":
        raise NothingToShare(f"Job '{job_id}' has no result; only a succeeded job has one.")
    response.headers["Cache-Control"] = "no-store"
    url = f"{services.settings.public_url}{PAGE}#{job_id}/{token}"
    return LinkView(url=url, expires_at=until)


@router.delete("/jobs/{job_id}/share", status_code=204, responses=problems(401, 403, 404, 503))
def unshare_result(request: Request, who: Writer, job_id: str) -> None:
    """Ends all links to a job's result."""
    services = services_of(request)
    services.job(job_id, who.name)
    services.store.unshare(job_id)


@router.post(
    "/shared/{job_id}/session",
    status_code=204,
    responses={
        204: {"headers": headers(Set_Cookie="The link's token, for this result only.")},
        **problems(401, 429, 503),
    },
)
def open_link(request: Request, response: Response, shared: Guest) -> None:
    """Returns the link's token as a cookie, with which a browser can load the result's pictures."""
    left = (shared.until - services_of(request).store.now()).total_seconds()
    response.set_cookie(
        COOKIE,
        shared.token,
        max_age=max(1, int(left)),
        path=shared_base(shared.job.id),
        secure=over_https(request),
        httponly=True,
        samesite="strict",
    )


@router.get("/shared/{job_id}", responses=problems(401, 429, 503))
def get_shared_result(response: Response, shared: Guest) -> SharedView:
    """The result that a link leads to."""
    response.headers["Cache-Control"] = "no-store"
    return shared_view(shared.job, shared.until)


@router.get("/shared/{job_id}/steps", responses=problems(401, 429, 503))
def list_shared_steps(request: Request, shared: Guest) -> list[dict[str, Any]]:
    """The job's reverse steps: the data of its ``progress`` events."""
    events = services_of(request).store.events(shared.job.id, count=MAX_EVENTS)
    base = shared_base(shared.job.id)
    return [with_link(base, event) for event in events if event.type == "progress"]


@router.get(
    "/shared/{job_id}/previews/{step}",
    response_class=Response,
    responses={**FILE_RESPONSES, **problems(422, 429)},
)
def get_shared_preview(
    request: Request, shared: Guest, step: int, if_none_match: IfNoneMatch = None
) -> Response:
    """The estimate after a reverse step, as a JPEG."""
    return preview_response(request, shared.job, step)


@router.get(
    "/shared/{job_id}/artifacts/{name}",
    response_class=Response,
    responses={**FILE_RESPONSES, **problems(429)},
)
def get_shared_artifact(
    request: Request,
    shared: Guest,
    name: str,
    if_none_match: IfNoneMatch = None,
    range_: Range = None,
    if_range: IfRange = None,
) -> Response:
    """A file of the job."""
    return artifact_response(request, shared.job, name)
