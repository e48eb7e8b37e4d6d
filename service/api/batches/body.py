"""Reads the body of ``POST /v1/batches``: one spec and many pictures, as JSON or as a form."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from fastapi import Request
from pydantic import Field
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from aps_contract import MAX_PICTURES
from service.access.principals import Principal
from service.api.app_state import services_of
from service.api.jobs.body import MAX_SPEC_BYTES, SMALL_BYTES, inline, json_object
from service.api.jobs.options import Options
from service.api.problems.errors import BodyTooLarge, MalformedBody, UnsupportedBody
from service.uploads.upload import Source

Picture = Source | str
"""A file, its URL, or the content hash of a stored picture."""


class BatchBody(Options):
    """A batch as sent."""

    images: list[Any] = Field(min_length=1, max_length=MAX_PICTURES)
    """Each a :data:`Picture`."""
    spec: dict[str, Any] = Field({})


async def read_batch(request: Request, who: Principal, files: AsyncExitStack) -> BatchBody:
    """Parses the body. ``files`` keeps a form's files open.

    Raises:
        UnsupportedBody: the content type is neither form nor JSON.
        MalformedBody, BodyTooLarge: the body cannot be read, or a data URI in it.
        pydantic.ValidationError: there are no pictures or too many, or a field is unknown.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        body = await request.body()
        if len(body) < SMALL_BYTES:
            return _of_json(body)
        return await services_of(request).pictures.decoding.run(who.name, _of_json, body)
    if kind != "multipart/form-data":
        raise UnsupportedBody(
            f"Content type {kind!r} is not accepted; send multipart/form-data or application/json."
        )
    limits = {"max_files": MAX_PICTURES + 1, "max_fields": MAX_PICTURES + 3}
    try:
        form = await files.enter_async_context(request.form(**limits, max_part_size=MAX_SPEC_BYTES))
    except HTTPException as error:
        raise MalformedBody(f"The form cannot be read: {error.detail}") from error
    return await _of_form(form)


def _of_json(body: bytes) -> BatchBody:
    found = BatchBody.model_validate(json_object(body))
    rest = len(body) - sum(len(each) for each in found.images if isinstance(each, str))
    if rest > MAX_SPEC_BYTES:
        raise BodyTooLarge(f"Without its pictures the body has more than {MAX_SPEC_BYTES} bytes.")
    images = [inline(each, f"images/{place}") for place, each in enumerate(found.images)]
    return found.model_copy(update={"images": images})


async def _of_form(form: FormData) -> BatchBody:
    images: list[Picture] = []
    texts: dict[str, Any] = {}
    for name, part in form.multi_items():
        if name == "images":
            images.append(
                part.file if isinstance(part, UploadFile) else inline(part, f"images/{len(images)}")
            )
        elif name in texts:
            raise MalformedBody(f"The form has several parts '{name}'; send one.").at(name)
        elif name in ("spec", "webhook"):
            read = await part.read() if isinstance(part, UploadFile) else part.encode()
            texts[name] = json_object(read, name)
        elif name == "priority" and isinstance(part, str):
            texts[name] = part
        else:
            raise MalformedBody(
                f"Unexpected part {name!r}; the parts are 'images' (a file each), 'spec', 'webhook'"
                " and 'priority'."
            )
    return BatchBody.model_validate({"images": images, **texts})
