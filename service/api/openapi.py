"""The OpenAPI document: FastAPI's description plus the schemas of the registered tasks.

``python -m service.api.openapi > docs/openapi.json`` updates the stored copy; a test checks that it
is current.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from aps_core.tasks import TaskSpec
from service.api.completion_models import ChatRequest
from service.api.options import Options
from service.api.problems import MEDIA_TYPE, Problem

_ADDRESS = (
    "A data URI (data:image/...;base64,...), sha256:... for a stored picture or, if the service"
    " allows it, an https URL."
)
COMPONENT = "#/components/schemas/{model}"


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of ``app``, built at the first call."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        described["components"]["schemas"].update(_components())
        _without_fastapis_errors(described)
        _with_unknown_parameters(described)
    return app.openapi_schema or {}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI responses for the problem statuses of a route."""
    content = {MEDIA_TYPE: {"schema": {"$ref": COMPONENT.format(model="Problem")}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def request_body(spec: type[TaskSpec], max_bytes: int) -> dict[str, Any]:
    """OpenAPI request body of a submission as form and as JSON, from the library's own schema.

    Args:
        spec: The task.
        max_bytes: Maximum size of the body.
    """
    schema = spec.model_json_schema(ref_template=COMPONENT)
    schema.pop("$defs", None)
    uri = {"type": "string", "format": "uri", "maxLength": max_bytes, "description": _ADDRESS}
    file = {
        "type": "string",
        "format": "binary",
        "description": "The file, or a text part with one of the values accepted in JSON.",
    }
    options = Options.model_json_schema(ref_template=COMPONENT)["properties"]
    needed = [name for name, always in spec.pictures.items() if always]
    uris, files = dict.fromkeys(spec.pictures, uri), dict.fromkeys(spec.pictures, file)
    inline = {
        **schema,
        "properties": {**uris, **options, **schema["properties"]},
        "required": [*needed, *schema.get("required", [])],
    }
    form = {
        "type": "object",
        "properties": {**files, "spec": schema, **options},
        "required": [*needed, "spec"],
    }
    content = {
        "multipart/form-data": {
            "schema": form,
            "encoding": {part: {"contentType": "application/json"} for part in ("spec", "webhook")},
        },
        "application/json": {"schema": inline},
    }
    return {"required": True, "content": content}


def headers(**described: str) -> dict[str, Any]:
    """Response headers; ``Retry_After`` stands for ``Retry-After``."""
    return {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in described.items()
    }


def _without_fastapis_errors(described: dict[str, Any]) -> None:
    """Removes FastAPI's default validation error schema, as the service never sends it."""
    for operation in (
        operation for path in described["paths"].values() for operation in path.values()
    ):
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        described["components"]["schemas"].pop(name, None)


def _with_unknown_parameters(described: dict[str, Any]) -> None:
    """Adds the problem for unknown query parameters to every ``/v1`` path."""
    refused = {str(status): problem for status, problem in problems(422).items()}
    for path, operations in described["paths"].items():
        for operation in operations.values() if path.startswith("/v1/") else ():
            operation["responses"] = {**refused, **operation["responses"]}


def _components() -> dict[str, Any]:
    """Schemas that the routes reference by name."""
    named: list[type[BaseModel]] = [Problem, Options, ChatRequest, *TaskSpec.family.values()]
    schemas = {cls: cls.model_json_schema(ref_template=COMPONENT) for cls in named}
    definitions = {
        name: schema
        for described in schemas.values()
        for name, schema in described.pop("$defs", {}).items()
    }
    return {**definitions, "Problem": schemas[Problem]}


def main() -> None:
    """Prints the document of this version."""
    from service.main import create_app
    from service.settings import Settings

    print(json.dumps(describe(create_app(Settings())), indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
