"""Reads the body of a submission: spec, pictures and options, as a form with files or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi import Request
from pydantic_core import from_json
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from aps_contract import Priority
from aps_core.errors import about
from aps_core.tasks import TaskSpec
from service.access.principals import Principal, needs_scope
from service.api.app_state import services_of
from service.api.jobs.accept import Submission
from service.api.jobs.options import WEBHOOK, Options
from service.api.problems.errors import BodyTooLarge, MalformedBody, UnsupportedBody
from service.api.requests.headers import cancel_after, idempotency_key, trace_parent
from service.uploads.decoder import from_data_uri
from service.uploads.pictures import PREFIX
from service.uploads.upload import Source

SMALL_BYTES = 256_000
"""Smaller bodies are parsed immediately; larger ones are queued fairly by tenant."""

_Read = tuple[dict[str, Any], dict[str, Source | str], dict[str, Any]]
"""Spec, pictures and options."""

OPTIONS = tuple(Options.model_fields)
MAX_SPEC_BYTES = 1_000_000
"""Maximum size of a form's text part, and of a JSON body without its pictures."""
MAX_VALUES = 10_000
"""Maximum values in a JSON document; each costs about a hundred bytes and may cause an error."""
_CHUNK_BYTES = 1 << 18


async def read_submission(
    request: Request, task: str, cls: type[TaskSpec], who: Principal, files: AsyncExitStack
) -> Submission:
    """Parses the body (form or JSON) and the headers that belong to the job.

    Raises:
        UnsupportedBody: the content type is neither form nor JSON.
        MalformedBody: the body cannot be parsed, or a picture is missing.
        InvalidHeader: a header is malformed.
    """
    sent = request.headers
    key, deadline = (
        idempotency_key(sent.get("idempotency-key")),
        cancel_after(sent.get("cancel-after")),
    )
    pictures: Mapping[str, Source | str]
    kind = sent.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        spec, pictures, options = await _read_form(request, cls, files)
    elif kind == "application/json":
        body = await request.body()
        spec, pictures, options = (
            _read_json(body, cls)
            if len(body) < SMALL_BYTES
            else await services_of(request).pictures.decoding.run(who.name, _read_json, body, cls)
        )
    else:
        raise UnsupportedBody(
            f"Content type {kind!r} is not accepted; send multipart/form-data or application/json."
        )
    for name, needed in cls.pictures.items():
        if needed and name not in pictures:
            raise MalformedBody(
                f"The picture '{name}' is missing: send it as the form part '{name}', or as the"
                f" JSON field '{name}' with a data URI; 'sha256:...' refers to a stored picture."
            ).at(name)
    if spec.get("type", task) != task:
        raise MalformedBody(f"The spec's type does not match the task '{task}'.").at("type")
    return Submission(
        task,
        spec,
        pictures,
        tenant=who.name,
        quota=who.quota,
        request_id=request.state.request_id,
        traceparent=trace_parent(sent.get("traceparent")),
        idempotency_key=key,
        cancel_after_seconds=deadline,
        options=allowed(options, who),
    )


def allowed(options: dict[str, Any], who: Principal) -> Options:
    """The options of a submission.

    Raises:
        pydantic.ValidationError: they are invalid.
        ScopeMissing: the caller may not submit with high priority.
    """
    wishes = Options.model_validate(options)
    if wishes.priority is Priority.HIGH and who.key is not None:
        needs_scope(who.key, "priority")
    return wishes


def inline(text: object, name: str) -> bytes | str:
    """Decodes a data URI. Other URLs and content hashes are returned unchanged, for
    :mod:`service.uploads.pictures` to resolve.
    """
    if isinstance(text, str) and ("://" in text[:10] or text.startswith(PREFIX)):
        return text
    with about(name):
        return from_data_uri(text, name)


def _read_json(body: bytes, cls: type[TaskSpec]) -> _Read:
    spec = json_object(body)
    options = {name: spec.pop(name) for name in OPTIONS if name in spec}
    sent = {name: spec.pop(name) for name in cls.pictures if name in spec}
    rest = len(body) - sum(len(text) for text in sent.values() if isinstance(text, str))
    if rest > MAX_SPEC_BYTES:
        raise BodyTooLarge(f"Without its pictures the body has more than {MAX_SPEC_BYTES} bytes.")
    pictures: dict[str, Source | str] = {
        name: inline(text, name) for name, text in sent.items() if text is not None
    }
    return spec, pictures, options


async def _read_form(request: Request, cls: type[TaskSpec], files: AsyncExitStack) -> _Read:
    try:
        form = await files.enter_async_context(
            request.form(
                max_files=len(cls.pictures) + 1,
                max_fields=len(cls.pictures) + 3,
                max_part_size=MAX_SPEC_BYTES,
            )
        )
        return await _parts(form, cls)
    except HTTPException as error:
        raise MalformedBody(f"The form cannot be read: {error.detail}") from error


async def _parts(form: FormData, cls: type[TaskSpec]) -> _Read:
    spec: dict[str, Any] = {}
    options: dict[str, Any] = {}
    pictures: dict[str, Source | str] = {}
    for name, part in form.multi_items():
        if len(form.getlist(name)) > 1:
            raise MalformedBody(
                f"The form has several parts {name[:80]!r}; send one. Several pictures go to"
                " POST /v1/batches."
            ).at(name)
        if name in cls.pictures:
            pictures[name] = part.file if isinstance(part, UploadFile) else inline(part, name)
        elif name in ("spec", "webhook"):
            found = json_object(
                await part.read() if isinstance(part, UploadFile) else part.encode(), name
            )
            spec, options = (found, options) if name == "spec" else (spec, {**options, name: found})
        elif name == "priority" and isinstance(part, str):
            options[name] = part
        else:
            files = " and ".join(f"'{picture}'" for picture in cls.pictures) or "none"
            raise MalformedBody(
                f"Unexpected part {name!r}; the file parts are {files}, the text parts 'spec',"
                " 'webhook' and 'priority'."
            )
    return spec, pictures, options


def json_object(text: bytes, part: str = "") -> dict[str, Any]:
    """Parses a JSON object: a request's body, or a ``part`` of its form.

    Raises:
        BodyTooLarge: it has more than ``MAX_VALUES`` values.
        MalformedBody: it is not a JSON object.
    """
    # Every value but the first follows one of these marks; counting them is much cheaper than
    # parsing. In parts, because a call holds the GIL, and an abusive document ends it early.
    marks, what = 0, f"The part '{part}'" if part else "The body"
    for start in range(0, len(text), _CHUNK_BYTES):
        chunk = text[start : start + _CHUNK_BYTES]
        marks += sum(chunk.count(mark) for mark in (b",", b"[", b"{"))
        if marks > MAX_VALUES:
            raise BodyTooLarge(f"{what} has more than {MAX_VALUES} values.")
    like = f", like {WEBHOOK}" if part == "webhook" else ""
    try:
        data = from_json(text)  # six times as fast as json, which matters as it holds the GIL
    except ValueError as error:
        problem = f"{what} must be a JSON object{like}; it is not valid JSON: {error}."
        raise MalformedBody(problem).at(part) from error
    if not isinstance(data, dict):
        raise MalformedBody(f"{what} must be a JSON object{like}.").at(part)
    return data
