"""Parts of the OpenAPI document that routes declare: problems, headers and request bodies."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

from aps_core.tasks import TaskSpec
from service.api.problems.handlers import MEDIA_TYPE

COMPONENT = "#/components/schemas/{model}"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for the problem statuses of a route."""
    content = {MEDIA_TYPE: {"schema": {"$ref": COMPONENT.format(model="Problem")}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def headers(**described: str) -> dict[str, Any]:
    """Response headers; ``Retry_After`` stands for ``Retry-After``."""
    return {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in described.items()
    }


def request_body(spec: type[TaskSpec]) -> dict[str, Any]:
    """OpenAPI request body of a submission as form and as JSON."""
    content = {
        "multipart/form-data": {
            "schema": {"$ref": COMPONENT.format(model=body_name(spec, "Form"))},
            "encoding": {part: {"contentType": "application/json"} for part in ("spec", "webhook")},
        },
        "application/json": {
            "schema": {"$ref": COMPONENT.format(model=body_name(spec, "Request"))}
        },
    }
    return {"required": True, "content": content}


def batch_body() -> dict[str, Any]:
    """OpenAPI request body of a batch as form and as JSON."""
    parts = {part: {"contentType": "application/json"} for part in ("spec", "webhook")}
    form = {"schema": {"$ref": COMPONENT.format(model="BatchForm")}, "encoding": parts}
    sent = {"schema": {"$ref": COMPONENT.format(model="BatchRequest")}}
    return {
        "required": True,
        "content": {"multipart/form-data": form, "application/json": sent},
    }


def estimate_body(spec: type[TaskSpec]) -> dict[str, Any]:
    """OpenAPI request body of an estimate."""
    schema = {"$ref": COMPONENT.format(model=body_name(spec, "EstimateRequest"))}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def component(model: type[BaseModel]) -> dict[str, str]:
    """A reference to the schema of a task's spec, or of another model among the components."""
    return {"$ref": COMPONENT.format(model=model.__name__)}


def body_name(spec: type[TaskSpec], suffix: str) -> str:
    """Component of a task's body, such as ``RestoreRequest``."""
    return spec.__name__.removesuffix("Spec") + suffix
