"""Webhooks are sent to public addresses only."""

from __future__ import annotations

import asyncio
from typing import Any

import httpcore
import httpx
import pytest

from service.egress.public_only import check_url, open_client
from service.egress.requests import UrlRefused
from tests.service.internet import ESCAPES, INSIDE, OUTSIDE, Server, answers

PUBLIC = "93.184.215.14"


def call(url: str, allow_private: bool = False) -> httpx.Response:
    async def send() -> httpx.Response:
        async with open_client(allow_private) as http:
            return await http.post(check_url(url, allow_private), content=b"{}")

    return asyncio.run(send())


@pytest.mark.parametrize("host", ESCAPES)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_private_addresses_are_rejected_by_name_and_number(
    inside: Server, host: str, scheme: str
) -> None:
    with pytest.raises((UrlRefused, httpx.ConnectError)):
        call(f"{scheme}://{host}:{inside.server_address[1]}/")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1.", "10.1.2.3", "[::1]", "localhost", "a.LocalHost."]
)
def test_addresses_that_are_not_public_are_rejected_before_delivery(host: str) -> None:
    with pytest.raises(UrlRefused, match="does not lead to a public address"):
        check_url(f"https://{host}/hook", allow_private=False)
    for allowed, private in ((host, True), (PUBLIC, False), ("localhost.example.org", False)):
        assert check_url(f"https://{allowed}/hook", private)


@pytest.mark.parametrize(
    "found",
    [
        [INSIDE],
        [PUBLIC, INSIDE],
        [INSIDE, PUBLIC],
        [PUBLIC, "::1"],
        [PUBLIC, "::ffff:169.254.169.254"],
        [],
    ],
)
def test_every_address_of_a_name_must_be_public(
    inside: Server, monkeypatch: pytest.MonkeyPatch, found: list[str]
) -> None:
    answers(monkeypatch, found)
    with pytest.raises(httpx.ConnectError, match="public"):
        call(f"https://rebind.example:{inside.server_address[1]}/")


def test_dns_rebinding_has_no_effect(inside: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, reached = answers(monkeypatch, [PUBLIC], [INSIDE]), []

    async def connect(self: Any, host: str, *_: Any, **__: Any) -> Any:
        reached.append(host)
        raise httpcore.ConnectError("far away")

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect)
    with pytest.raises(httpx.ConnectError, match="far away"):
        call(f"https://rebind.example:{inside.server_address[1]}/")
    assert (reached, asked()) == ([PUBLIC], 1)


def test_redirects_are_not_followed(internet: Server, inside: Server) -> None:
    target = f"http%3A%2F%2F{INSIDE}%3A{inside.server_address[1]}%2F"
    assert (
        call(
            f"http://{OUTSIDE}:{internet.server_address[1]}/to/{target}", allow_private=True
        ).status_code
        == 302
    )


@pytest.mark.parametrize("environment", ["http_proxy", "https_proxy", "all_proxy"])
def test_proxies_of_the_environment_are_not_used(
    internet: Server, inside: Server, monkeypatch: pytest.MonkeyPatch, environment: str
) -> None:
    monkeypatch.setenv(environment, f"http://{INSIDE}:{inside.server_address[1]}")
    assert (
        call(f"http://{OUTSIDE}:{internet.server_address[1]}/photo", allow_private=True).status_code
        == 200
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "https://a:b@example.org/",
        "https://",
        "https://[",
        "x",
        "",
        "https://a/ b",
    ],
)
def test_only_valid_https_urls_are_accepted(url: str) -> None:
    with pytest.raises(UrlRefused):
        check_url(url, allow_private=False)
