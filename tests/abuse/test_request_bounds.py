"""Every list, string and number of every request is bounded, in its schema and when it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from service.main import create_app
from service.settings import Settings

DOCUMENT = create_app(Settings()).openapi()

PLACES = {
    f"{method.upper()} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    if "requestBody" in operation or operation.get("parameters")
}
"""Path parameters are looked up, and headers are bounded by the server: a line in all."""


def unbounded(schema: dict[str, Any], path: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
    """Where a schema lets a value be as large as a client likes."""
    if (reference := schema.get("$ref")) is not None:
        if reference not in seen:  # one that contains itself is bounded by what it contains
            name = reference.rpartition("/")[2]
            found = DOCUMENT["components"]["schemas"][name]
            yield from unbounded(found, path, (*seen, reference))
        return
    for number, part in enumerate(
        [*schema.get("anyOf", []), *schema.get("oneOf", []), *schema.get("allOf", [])]
    ):
        yield from unbounded(part, f"{path}|{number}", seen)
    if "enum" in schema or "const" in schema:
        return
    match schema.get("type"):
        case "string":
            # the grammar of a time bounds its length
            if "maxLength" not in schema and schema.get("format") not in ("binary", "date-time"):
                yield f"{path}: text"
        case "integer" | "number":
            low = "minimum" in schema or "exclusiveMinimum" in schema
            if not (low and ("maximum" in schema or "exclusiveMaximum" in schema)):
                yield f"{path}: number"
        case "array":
            if "maxItems" not in schema:
                yield f"{path}: list"
            for part in (schema.get("items"), *schema.get("prefixItems", [])):
                if part:
                    yield from unbounded(part, f"{path}[]", seen)
        case "object":
            if schema.get("additionalProperties", True) is not False and "properties" not in schema:
                yield f"{path}: object"
        case None if not {"anyOf", "oneOf", "allOf"} & schema.keys():
            yield f"{path}: anything"
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, f"{path}.{name}", seen)


@pytest.mark.parametrize("place", PLACES)
def test_every_value_of_every_request_is_bounded(place: str) -> None:
    operation = PLACES[place]
    found = [
        each
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query"
        for each in unbounded(parameter["schema"], f"{parameter['in']} {parameter['name']}")
    ]
    for kind, media in operation.get("requestBody", {}).get("content", {}).items():
        found += unbounded(media["schema"], kind)
    assert not found


def test_the_search_finds_what_is_unbounded() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "string"}},
            "c": {},
            "b": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        },
    }
    assert list(unbounded(schema, "x")) == [
        "x.a: list",
        "x.a[]: text",
        "x.c: anything",
        "x.b|0: number",
    ]
