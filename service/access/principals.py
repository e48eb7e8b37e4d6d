"""Authentication and authorization: a dependency of every route under ``/v1``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from service.access.keys import ApiKey
from service.access.rate_limit import Allowance, RateLimiter
from service.access.sessions import COOKIE, SessionStore, check_origin
from service.api.app_state import services_of
from service.api.problems.errors import ScopeMissing, Unauthorized
from service.api.requests.parameters import known_parameters
from service.jobs import Quota
from service.settings import Settings

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="key",
    description="An API key; not required where the service runs on loopback without keys.",
)
_session = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description="Session cookie from `POST /v1/session`; for browsers.",
)


@dataclass(frozen=True)
class Principal:
    """The owner of a request, with its quota. ``name`` is empty where keys are off: all requests
    then share one tenant without individual limits.
    """

    name: str = ""
    quota: Quota = Quota()  # noqa: RUF009  frozen
    key: ApiKey | None = None
    by_session: bool = False
    """Whether the request was authenticated by a session cookie."""


async def principal(
    request: Request,
    needed: SecurityScopes,
    _: Annotated[None, Depends(known_parameters)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
    session: Annotated[str | None, Security(_session)] = None,
) -> Principal:
    """The principal of the request's API key or session.

    Raises:
        Unauthorized: the request has neither a valid key nor a valid session.
        ScopeMissing: the key lacks a required scope.
        Misdirected: a state-changing request with a session cookie comes from another site.
        RateLimited: the principal's rate limit is exceeded.
        Busy: too many requests with this credential are waiting.
    """
    services = services_of(request)
    if not services.settings.auth_required:
        return Principal()
    if credentials is not None:
        secret = credentials.credentials
        find = partial(services.keys.find, secret)
    elif session is not None:
        check_origin(request)
        secret = session
        find = partial(SessionStore(services.keys).find, secret)
    else:
        raise Unauthorized(
            "Send an API key: 'Authorization: Bearer aps_...'. Create keys with 'aps keys create'."
        )
    # the line is per credential: a burst of one client's requests must not delay the others
    key, allowance = await services.authentication.run(secret, _let_in, services.rates, find)
    if key is None or allowance is None:
        raise Unauthorized(
            "This API key is unknown or has been revoked."
            if credentials
            else "The session has ended; sign in with the API key again."
        )
    needs_scope(key, *needed.scopes)
    request.state.principal, request.state.allowance = key.principal, allowance
    allowance.check()
    quota = _quota(key, services.settings)
    return Principal(key.principal, quota, key, by_session=credentials is None)


def _let_in(
    rates: RateLimiter, find: Callable[[], ApiKey | None]
) -> tuple[ApiKey | None, Allowance | None]:
    """Looks up the key and takes a token from its principal's rate limit bucket."""
    key = find()
    return key, rates.spend(key.principal) if key else None


def _quota(key: ApiKey, settings: Settings) -> Quota:
    return Quota(
        max_queued=key.max_queued or settings.max_queued,
        max_running=key.max_running or settings.max_running,
        max_backlog_seconds=settings.max_own_backlog_seconds,
        max_stored_bytes=settings.max_stored_bytes,
    )


def needs_scope(key: ApiKey, *scopes: str) -> None:
    """Checks that a key has all ``scopes``.

    Raises:
        ScopeMissing: the key lacks a scope.
    """
    if missing := set(scopes) - key.scopes:
        raise ScopeMissing(f"The API key lacks the scope '{', '.join(sorted(missing))}'.")


Reader = Annotated[Principal, Security(principal, scopes=["read"])]
Writer = Annotated[Principal, Security(principal, scopes=["write"])]
