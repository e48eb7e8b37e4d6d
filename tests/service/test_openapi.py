"""The OpenAPI document is frozen and valid, and the API conforms to it for generated requests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Ok

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


def test_the_document_is_valid_and_frozen() -> None:
    described = json.loads(json.dumps(create_app(Settings()).openapi()))
    validate(described)
    assert described == json.loads(FROZEN.read_text()), (
        "the API has changed: python -m service.api.openapi > docs/openapi.json, and tell its users"
    )


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
            register_idle_worker(service)
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


@pytest.mark.parametrize("label", OPERATIONS)
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
