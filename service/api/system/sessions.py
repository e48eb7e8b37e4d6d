"""Sign-in of the web UI where API keys are required: exchanges a key for a session cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Cookie, Request, Response

from service.access.principals import Reader
from service.access.sessions import COOKIE, SESSION_SECONDS, SessionStore
from service.api.app_state import services_of
from service.api.openapi.fragments import headers, problems
from service.api.problems.errors import Unauthorized

router = APIRouter(prefix="/v1/session", tags=["service"])


@router.post(
    "",
    status_code=204,
    responses={
        204: {
            "headers": headers(
                Set_Cookie="The session cookie (SameSite=Strict); absent where keys are off."
            )
        },
        **problems(401, 403, 503),
    },
)
def start_session(request: Request, response: Response, who: Reader) -> None:
    """Exchanges the request's API key for a session cookie with the same scopes, valid for a week.
    A session cannot start another session, as that one would outlive it.
    """
    if who.key is None:
        return
    if who.by_session:
        raise Unauthorized(
            "Starting a session requires an API key: 'Authorization: Bearer aps_...'."
        )
    token = SessionStore(services_of(request).keys).start(who.key)
    response.set_cookie(
        COOKIE,
        token,
        max_age=SESSION_SECONDS,
        path="/v1",
        secure=over_https(request),
        httponly=True,
        samesite="strict",
    )


@router.delete("", status_code=204, responses=problems(401, 403, 503))
def end_session(
    request: Request,
    response: Response,
    who: Reader,
    token: Annotated[str, Cookie(alias=COOKIE, include_in_schema=False)] = "",
) -> None:
    """Ends the session and invalidates its cookie."""
    SessionStore(services_of(request).keys).end(token)
    response.delete_cookie(COOKIE, path="/v1", httponly=True, samesite="strict")


def over_https(request: Request) -> bool:
    """Whether the browser sent the request over HTTPS, so that its cookie may require that.

    Behind a proxy that terminates TLS, only the page's origin shows it.
    """
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
