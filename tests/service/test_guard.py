"""Without API keys, requests from other web sites are rejected."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from service.access.host_guard import HostGuard
from service.settings import Settings
from tests.apis import running_api
from tests.stack import Stack


def host_of(stack: Stack) -> str:
    return stack.url.removeprefix("http://")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8000",
        "evil.example:80",
        "[::ffff:1.2.3.4]",
        "@",
        "[",
        "",
    ],
)
def test_a_foreign_host_is_refused(stack: Stack, host: str) -> None:
    for path in ("/v1/jobs", "/", "/openapi.json", "/docs"):
        answer = stack.http.get(path, headers={"Host": host})
        assert answer.status_code in (400, 403), answer.text
        if answer.status_code == 403:
            assert answer.json()["code"] == "host_not_allowed"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:8000"])
def test_own_host_names_are_accepted(stack: Stack, host: str) -> None:
    assert stack.http.get("/v1/jobs", headers={"Host": host}).status_code == 200


def test_cross_origin_requests_are_rejected(stack: Stack) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "file://"):
        for method, path in (
            ("POST", "/v1/restore"),
            ("GET", "/v1/jobs"),
            ("DELETE", "/v1/jobs/x"),
        ):
            assert stack.http.request(method, path, headers={"Origin": origin}).status_code == 403
    own = {"Origin": stack.url}
    assert stack.http.get("/v1/jobs", headers=own).status_code == 200
    assert "Access-Control-Allow-Origin" not in stack.http.get("/v1/jobs", headers=own).headers


def test_probes_accept_any_host_name(stack: Stack) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        assert stack.http.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200


def test_allowed_host_names_can_be_configured(stack: Stack, tmp_path: Any) -> None:
    with running_api(
        stack.settings,
        tmp_path / "log",
        host="0.0.0.0",
        auth="none",
        allowed_hosts=["127.0.0.1", "aps.example"],
    ) as http:
        assert http.get("/v1/jobs", headers={"Host": "aps.example"}).status_code == 200
        assert http.get("/v1/jobs", headers={"Host": "evil.example"}).status_code == 403
        assert http.get("/v1/jobs", headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("server", "status"),
    [
        (("10.0.0.5", 8000), 403),
        (("127.0.0.1", 8000), 200),
        (("::1", 8000), 200),
        (("/run/aps.sock", None), 200),
    ],
)
def test_binding_to_another_address_does_not_open_access(
    server: tuple[str, int | None], status: int
) -> None:
    """``uvicorn --host 0.0.0.0`` started manually while APS_HOST is loopback."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask() -> int:
        async def bound(scope: Any, receive: Any, send: Any) -> None:
            await HostGuard(app, Settings())({**scope, "server": server}, receive, send)

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(bound), base_url="http://localhost:8000"
        ) as http:
            return (await http.get("/v1/jobs")).status_code

    assert asyncio.run(ask()) == status
