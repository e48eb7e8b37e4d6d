"""The OpenAPI document is frozen and valid, and the API conforms to it for generated requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

from aps_core.checkpoints.manifest import CHECKPOINTS
from service.launch.embedded_server import running_server
from service.main import create_app
from service.settings import Settings
from tests.apis import register_idle_worker, running_api
from tests.stack import png, uri

FROZEN = Path(__file__).parents[2] / "docs/openapi.json"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("APS_TEST_EXAMPLES", "8"))
"""Number of requests per kind and operation; use a few hundred for a thorough search."""
ANSWERED_BY_A_WORKER = {"POST /v1/chat/completions"}
"""A request that waits for its answer, which nobody computes here; see ``tests/e2e``."""


def test_the_document_is_valid_and_frozen() -> None:
    described = json.loads(json.dumps(create_app(Settings()).openapi()))
    validate(described)
    assert described == json.loads(FROZEN.read_text()), (
        "the API has changed: python scripts/make_openapi.py > docs/openapi.json"
    )


def test_every_field_says_what_it_is() -> None:
    """``type`` alone has one value, which is its description."""
    schemas = json.loads(FROZEN.read_text())["components"]["schemas"]
    silent = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if "const" not in described and "description" not in described
    ]
    assert silent == []


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """An API that accepts jobs but never runs them."""
    folder = tmp_path_factory.mktemp("described")
    base = Settings(data_dir=folder, artifacts_dir=folder / "artifacts", max_queued=10**6)
    with running_server(base) as url:
        service = base.model_copy(update={"redis_url": url})
        with (
            running_api(service, folder / "log") as http,
            patch("service.jobs.workers.ALIVE_SECONDS", 86_400),
        ):
            register_idle_worker(service, tuple(CHECKPOINTS))
            yield http


def operations() -> dict[str, schemathesis.APIOperation]:
    """All operations of the document, by method and path."""
    schemathesis.openapi.format(
        "binary", st.sampled_from([png(16, 16), png(8, 8, "L"), b"", b"\x89PNG"])
    )
    schemathesis.openapi.format(
        "uri",
        st.sampled_from(
            [
                uri(png(16, 16)),
                "data:image/png;base64,AAAA",
                "https://127.0.0.1/",
                "http://[",
                "",
                "sha256:" + 64 * "0",
            ]
        ),
    )
    found = schemathesis.openapi.from_dict(create_app(Settings()).openapi()).get_all_operations()
    return {each.ok().label: each.ok() for each in found if isinstance(each, Ok)}


OPERATIONS = operations()


@pytest.mark.parametrize("label", sorted(OPERATIONS.keys() - ANSWERED_BY_A_WORKER))
def test_no_request_causes_a_server_error(api: httpx.Client, label: str) -> None:
    modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]

    @given(case=st.one_of([OPERATIONS[label].as_strategy(generation_mode=mode) for mode in modes]))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def holds(case: schemathesis.Case) -> None:
        case.headers.pop("prefer", None)  # nobody computes here: it would be waited for
        case.call_and_validate(base_url=str(api.base_url), checks=CHECKS, timeout=30)

    holds()


def test_every_operation_has_a_short_id_and_examples_that_are_valid() -> None:
    described = json.loads(FROZEN.read_text())
    schemas = described["components"]["schemas"]

    def valid(schema: dict[str, Any], example: object) -> None:
        whole = {**schema, "components": described["components"]}
        Draft202012Validator(whole).validate(example)

    def check(schema: dict[str, Any], where: str) -> None:
        reference = str(schema.get("$ref", "")).rpartition("/")[2]
        found = schemas[reference] if reference else schema
        assert found.get("examples"), f"{where} has no example"
        for example in found["examples"]:
            valid(found, example)

    seen = set()
    for path, operations in described["paths"].items():
        for operation in operations.values():
            name = operation["operationId"]
            assert "_v1_" not in name
            assert operation["tags"][0] in {tag["name"] for tag in described["tags"]}
            seen.add(name)
            for parameter in operation.get("parameters", []):
                if parameter["in"] != "header":
                    valid(parameter["schema"], parameter["example"])
            body = operation.get("requestBody", {}).get("content", {})
            for kind, media in body.items():
                if "properties" in media["schema"] and kind == "application/json":
                    check(media["schema"], f"the body of {name}")
            for status, answer in operation["responses"].items():
                media = answer.get("content", {}).get("application/json", {})
                if "$ref" in media.get("schema", {}):
                    check(media["schema"], f"{status} of {path}")
                elif media.get("schema"):
                    assert "example" in media, f"{status} of {path}"
    assert {"list_jobs", "get_job", "restore", "estimate_restore", "store_picture"} <= seen
