"""Turns every error into an RFC 9457 problem document."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from aps_contract import EstimateRequest, FieldError
from aps_contract import Problem as Problem
from aps_core import errors
from aps_core.registry import plain, relevant
from aps_core.tasks.suggestions import nearest_field
from service.api.problems.errors import MalformedBody, MethodNotAllowed, NotFound, status_of
from service.api.requests.headers import RangeNotSatisfiable
from service.jobs import NotNow

MEDIA_TYPE = "application/problem+json"

OPENAI_PATHS = ("/v1/chat/", "/v1/models")

BRANCH = re.compile(r"(constrained|function)-.*|(literal|tuple)\[.*\]")
"""What Pydantic calls a branch of a union; it is no part of the request."""
SPEC_INSIDE = (EstimateRequest.__name__, "BatchBody")
"""Models of bodies whose field 'spec' has the task's fields."""
MAX_ERRORS = 20
"""Maximum number of invalid fields listed in one response."""
MAX_ANSWER_BYTES = 64_000
"""Maximum size of a problem document, regardless of the request."""
MAX_DETAIL, MAX_FIELD_DETAIL, MAX_POINTER = 2000, 300, 100
"""Maximum length of each, in characters."""


def install(app: FastAPI) -> None:
    """Registers handlers that turn every error of ``app`` into a problem document."""
    handlers: dict[type[Exception], Callable[[Request, Any], Awaitable[Response]]] = {
        errors.APSError: library_error,
        ValidationError: _invalid_fields,
        RequestValidationError: _invalid_fields,
        HTTPException: _http_error,
        RedisError: _store_error,
        Exception: _unknown_error,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _respond(
    request: Request,
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    retryable: bool = False,
    fields: Sequence[FieldError] = (),
) -> Response:
    request_id = getattr(request.state, "request_id", "")
    problem = Problem(
        type=f"urn:aps:problem:{code}",
        title=title,
        status=status,
        detail=_clipped(detail, MAX_DETAIL),
        code=code,
        retryable=retryable,
        errors=list(fields),
        request_id=request_id,
    )
    headers = {"X-Request-ID": request_id}
    if status == 503:
        headers["Retry-After"] = "5"
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="aps"'
    if status in (408, 413):
        headers["Connection"] = "close"  # otherwise the server would read the rest of the body
    # ASCII only, as a detail may quote client input
    body = json.dumps(_described(request, problem))
    while len(body) > MAX_ANSWER_BYTES:
        problem = problem.model_copy(update={"errors": problem.errors[: len(problem.errors) // 2]})
        body = json.dumps(_described(request, problem))
    return Response(body, status, headers, MEDIA_TYPE)


def _described(request: Request, problem: Problem) -> dict[str, Any]:
    """The problem; on paths of OpenAI's API with the member in which its clients look for it."""
    described = problem.model_dump()
    if request.url.path.startswith(OPENAI_PATHS):
        described["error"] = {
            "message": problem.detail,
            "type": problem.code,
            "code": problem.code,
            "param": problem.errors[0].pointer if problem.errors else None,
        }
    return described


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


async def library_error(request: Request, error: errors.APSError) -> Response:
    """Problem response for an error of the library's tree."""
    status, fields = status_of(error), []
    if error.field and status < 500:  # otherwise it is the service that is to blame
        detail = _clipped(str(error), MAX_FIELD_DETAIL)
        fields = [FieldError(pointer=_clipped(f"/{error.field}", MAX_POINTER), detail=detail)]
    response = _respond(
        request,
        status,
        error.code,
        error.title,
        str(error),
        retryable=error.retryable,
        fields=fields,
    )
    if isinstance(error, NotNow):
        response.headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, RangeNotSatisfiable):
        response.headers["Content-Range"] = f"bytes */{error.size}"
    return response


async def _invalid_fields(
    request: Request, error: ValidationError | RequestValidationError
) -> Response:
    if isinstance(error, ValidationError):
        found = relevant(error.errors(include_url=False, include_input=False))
        around_spec = error.title in SPEC_INSIDE
    else:  # the first part says whether it is about the query, the body, ...
        found = [{**entry, "loc": entry["loc"][1:]} for entry in relevant(error.errors())]
        around_spec = False
    fields = [
        FieldError(
            pointer=_clipped(_pointer(entry), MAX_POINTER),
            detail=_clipped(_message(entry, _task_of(request), around_spec), MAX_FIELD_DETAIL),
        )
        for entry in found[:MAX_ERRORS]
    ]
    detail = "; ".join(f"{field.pointer or '/'}: {field.detail}" for field in fields[:5])
    if len(found) > MAX_ERRORS:
        detail = f"{len(found)} fields are invalid, the first {MAX_ERRORS} are listed; {detail}"
    return _respond(
        request, 422, errors.InvalidSpec.code, errors.InvalidSpec.title, detail, fields=fields
    )


async def _http_error(request: Request, error: HTTPException) -> Response:
    known: errors.APSError | None = None
    if error.status_code == 404 and request.scope.get("route") is None:
        known = NotFound(_nothing_at(request))
    elif error.status_code == 405:
        known = MethodNotAllowed(
            f"{request.url.path[:100]} does not support {request.method[:20]}."
        )
    elif error.status_code == 400:
        known = MalformedBody(f"{error.detail}.")
    if known is not None:
        response = await library_error(request, known)
    else:
        phrase = HTTPStatus(error.status_code).phrase
        response = _respond(
            request, error.status_code, phrase.lower().replace(" ", "_"), phrase, str(error.detail)
        )
    response.headers.update(error.headers or {})
    return response


def _nothing_at(request: Request) -> str:
    """Message for an unknown path, with a suggestion if it resembles a known one."""
    path = request.url.path[:100]
    paths = [route.path for route in request.app.routes if isinstance(route, APIRoute)]
    near = get_close_matches(path, paths, 1, 0.8)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"There is nothing at {path}.{meant} /openapi.json lists all paths."


async def _store_error(request: Request, error: RedisError) -> Response:
    return _respond(
        request,
        503,
        "store_unavailable",
        "The job store is unavailable",
        "The job store does not answer; try again.",
        retryable=True,
    )


async def _unknown_error(request: Request, error: Exception) -> Response:
    detail = "An unexpected error occurred. It has been logged with the request's id."
    return _respond(request, 500, errors.APSError.code, errors.APSError.title, detail)


def _task_of(request: Request) -> str:
    """The task of a submission or estimate: the path's second part. Batches are restored."""
    second = (request.url.path.split("/") + [""] * 3)[2]
    return "restore" if second == "batches" else second


def _message(entry: Any, task: str, around_spec: bool) -> str:
    """Describes what is wrong with a field, without quoting the input. ``around_spec``: of an
    object that contains the task's fields as 'spec'.
    """
    if entry["type"] == "extra_forbidden":
        near = nearest_field(task, str(entry["loc"][-1])[:MAX_POINTER])
        inside = "spec." if around_spec else ""
        return "There is no such field" + (f"; did you mean '{inside}{near}'?" if near else "")
    if entry["type"] == "union_tag_invalid":
        return f"Unknown {entry['ctx']['discriminator']}; known: {entry['ctx']['expected_tags']}"
    return plain(entry)


def _pointer(entry: Any) -> str:
    """JSON pointer to the place of an error, without the branches of unions; to the whole body if
    that is not valid JSON.
    """
    location = () if entry["type"] == "json_invalid" else entry["loc"]
    parts = (part for part in map(str, location) if not BRANCH.fullmatch(part))
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
