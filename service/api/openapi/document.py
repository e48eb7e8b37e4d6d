"""The OpenAPI document: FastAPI's description plus the schemas of the registered tasks.

``scripts/make_openapi.py`` prints it.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from aps_contract import MAX_PICTURES, EstimateRequest, Problem
from aps_core.tasks import RestoreSpec, TaskSpec
from service.api.completions.models import ChatRequest
from service.api.jobs.options import Options
from service.api.openapi import examples
from service.api.openapi.fragments import COMPONENT, body_name, component, problems

_ADDRESS = (
    "A data URI (data:image/...;base64,...), sha256:... for a stored picture or, if the service"
    " allows it, an https URL."
)
_FILE = {
    "type": "string",
    "format": "binary",
    "description": "The file, or a text part with one of the values accepted in JSON.",
}
TAGS = {
    "tasks": "Submit a job, or predict what it would take. One operation per registered task.",
    "chat": "Text jobs in OpenAI's format, for existing clients.",
    "batches": "Many restorations in one request.",
    "jobs": "Follow, list, cancel and delete jobs.",
    "files": "Upload pictures for later jobs; download results and previews.",
    "sharing": "Share a result by link; read the result that a link leads to.",
    "webhooks": "Deliveries of webhooks and the secrets that sign them.",
    "service": "What the service offers, its health, and sign-in of browsers.",
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of ``app``, built at the first call."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        described["components"]["schemas"].update(_components(app.state.settings.max_body_bytes))
        _without_fastapis_errors(described)
        _with_unknown_parameters(described)
        _with_examples(described)
        _with_values_of_types(described, described["components"]["schemas"])
        described["servers"] = [{"url": "/", "description": "The service with this document."}]
        described["tags"] = [{"name": name, "description": text} for name, text in TAGS.items()]
    return app.openapi_schema or {}


def _bodies(spec: type[TaskSpec], max_bytes: int) -> dict[str, Any]:
    """Schemas of the bodies of a task's operations by name, from the library's own schema.

    Args:
        spec: The task.
        max_bytes: Maximum size of the body.
    """
    schema = spec.model_json_schema(ref_template=COMPONENT)
    schema.pop("$defs", None)
    uri = _uri(max_bytes)
    options = Options.model_json_schema(ref_template=COMPONENT)["properties"]
    needed = [name for name, always in spec.pictures.items() if always]
    uris, files = dict.fromkeys(spec.pictures, uri), dict.fromkeys(spec.pictures, _FILE)
    request = {
        **schema,
        "title": body_name(spec, "Request"),
        "properties": {**uris, **options, **schema["properties"]},
        "required": [*needed, *schema.get("required", [])],
    }
    form = {
        "type": "object",
        "title": body_name(spec, "Form"),
        "properties": {**files, "spec": _spec(spec), **options},
        "required": [*needed, "spec"],
    }
    asked = EstimateRequest.model_json_schema(ref_template=COMPONENT)
    asked["properties"]["spec"] = _spec(spec)
    asked["title"] = body_name(spec, "EstimateRequest")
    if (example := examples.SPECS.get(str(spec.model_fields["type"].default))) is not None:
        request["examples"] = [{**dict.fromkeys(needed, examples.PICTURE), **example}]
        form["examples"] = [{**dict.fromkeys(needed, "(the file)"), "spec": example}]
        size = {"image_size": [697, 472]} if spec.pictures.get("image") else {}
        asked["examples"] = [{"spec": example, **size}]
    return {str(each["title"]): each for each in (request, form, asked)}


def _spec(task: type[TaskSpec]) -> dict[str, Any]:
    """The field ``spec`` of a body."""
    return {**component(task), "description": "The task's settings."}


def _batch_bodies(max_bytes: int) -> dict[str, Any]:
    """Schemas of the bodies of a batch by name."""
    options = Options.model_json_schema(ref_template=COMPONENT)["properties"]
    spec, bodies = _spec(RestoreSpec), {}
    for name, picture, shown in (
        ("BatchRequest", _uri(max_bytes), examples.PICTURE),
        ("BatchForm", _FILE, "(the file)"),
    ):
        images = {
            "type": "array",
            "items": picture,
            "minItems": 1,
            "maxItems": MAX_PICTURES,
            "description": "The pictures; each becomes a job.",
        }
        bodies[name] = {
            "type": "object",
            "title": name,
            "properties": {"images": images, "spec": spec, **options},
            "required": ["images", "spec"],
            "additionalProperties": False,
            "examples": [{"images": [shown, shown], "spec": examples.SPECS["restore"]}],
        }
    return bodies


def _uri(max_bytes: int) -> dict[str, Any]:
    """Schema of a picture in JSON."""
    return {"type": "string", "format": "uri", "maxLength": max_bytes, "description": _ADDRESS}


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


def _with_examples(described: dict[str, Any]) -> None:
    """Adds the examples of :mod:`service.api.openapi.examples`."""
    schemas = described["components"]["schemas"]
    for name, example in examples.COMPONENTS.items():
        schemas[name]["examples"] = [example]
    for task, spec in TaskSpec.family.items():
        if task in examples.SPECS:
            schemas[spec.__name__]["examples"] = [examples.SPECS[task]]
    for operation in (each for path in described["paths"].values() for each in path.values()):
        for parameter in operation.get("parameters", []):
            if parameter["name"] in examples.PARAMETERS:
                parameter["example"] = examples.PARAMETERS[parameter["name"]]
        if operation["operationId"] in examples.INLINE:
            answer = operation["responses"]["200"]["content"]["application/json"]
            answer["example"] = examples.INLINE[operation["operationId"]]


def _with_values_of_types(part: Any, schemas: dict[str, Any]) -> None:
    """Adds to every choice by ``type`` which value means which schema. Without this, OpenAPI takes
    the schemas' names for the values, as generators of clients do.
    """
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        _with_values_of_types(inner, schemas)
    if isinstance(part, dict) and "propertyName" in part.get("discriminator", {}):
        by_name = {each["$ref"].rpartition("/")[2]: each["$ref"] for each in part["oneOf"]}
        part["discriminator"]["mapping"] = {
            schemas[name]["properties"]["type"]["const"]: ref for name, ref in by_name.items()
        }


def _components(max_bytes: int) -> dict[str, Any]:
    """Schemas that the routes reference by name."""
    named: list[type[BaseModel]] = [Problem, Options, ChatRequest, *TaskSpec.family.values()]
    schemas = {cls: cls.model_json_schema(ref_template=COMPONENT) for cls in named}
    definitions = {
        name: schema
        for described in schemas.values()
        for name, schema in described.pop("$defs", {}).items()
    }
    specs = {cls.__name__: schema for cls, schema in schemas.items() if cls is not Options}
    bodies = [_bodies(TaskSpec.named(name), max_bytes) for name in TaskSpec.family]
    return {
        **definitions,
        **specs,
        **{name: schema for each in bodies for name, schema in each.items()},
        **_batch_bodies(max_bytes),
    }
