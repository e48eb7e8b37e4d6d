"""Links to one result. A link gives read access to that result alone, until the link expires or its
owner ends it.

A link's token is in the fragment of its address, which browsers never send. The page sends it in
a header once and receives it as a cookie, as ``<img>`` cannot send a header. No request's address
therefore contains the token. Only its hash is stored.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from service.access.rate_limit import Allowance
from service.api.app_state import JOB_ID, Services, services_of
from service.api.problems.errors import LinkInvalid
from service.api.requests.parameters import known_parameters
from service.jobs import Job

COOKIE = "aps_link"
MAX_LINKS = 10
"""Maximum links to one result at a time."""
_TOKEN = re.compile(r"aps_link_[A-Za-z0-9_-]{43}")

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="link",
    description="The token of a link to a result: the part of its address after the last `/`.",
)
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="link_cookie",
    description="The same token; set by `POST /v1/shared/{job_id}/session`, for browsers.",
)


@dataclass(frozen=True)
class SharedResult:
    """The job whose result a link gives access to."""

    job: Job
    until: datetime
    """When the link ends."""
    token: str


def new_token() -> str:
    """A link's token with 256 random bits."""
    return f"aps_link_{secrets.token_urlsafe(32)}"


def digest(token: str) -> str:
    """The hash under which a link is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


async def shared_result(
    request: Request,
    job_id: str,
    _: Annotated[None, Depends(known_parameters)],
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None,
    cookie: Annotated[str | None, Security(_cookie)] = None,
) -> SharedResult:
    """The result that the request's link gives access to. Ignores API keys and sessions.

    Raises:
        LinkInvalid: there is no such link, or it has ended.
        RateLimited: too many requests with links to this result.
        Busy: too many requests with this link are waiting.
    """
    services = services_of(request)
    token = credentials.credentials if credentials is not None else cookie
    opened = None
    if token is not None and _TOKEN.fullmatch(token) and JOB_ID.fullmatch(job_id):
        opened = await services.authentication.run(token, _open, services, job_id, token)
    if opened is None:
        raise LinkInvalid(
            "This link is wrong, has expired, or was ended by its owner. Ask them for a new one."
        )
    shared, allowance = opened
    request.state.allowance = allowance
    allowance.check()
    return shared


def _open(services: Services, job_id: str, token: str) -> tuple[SharedResult, Allowance] | None:
    """Looks up the link, and takes a token from the bucket of the job's links, so that they do not
    use up their owner's rate limit.
    """
    until = services.store.shared_until(job_id, digest(token))
    job = services.store.get(job_id) if until is not None else None
    if until is None or job is None:
        return None
    return SharedResult(job, until, token), services.rates.spend(f"link:{job_id}")


Guest = Annotated[SharedResult, Depends(shared_result)]
