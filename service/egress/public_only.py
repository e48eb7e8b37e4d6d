"""HTTP client for URLs supplied by clients: connects to public addresses only.

Each host name is resolved once per connection, all of its addresses must be public, and the
connection uses one of them. A second lookup with another result (DNS rebinding) cannot happen.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from service.egress import requests as egress

NOT_PUBLIC = "its host does not lead to a public address"


def check_url(url: str, allow_private: bool) -> str:
    """Checks a webhook URL; returns it unchanged.

    Raises:
        UrlRefused: it contains credentials or, without ``allow_private``, is not an https URL or
            names an address that is not public. Other hosts are looked up at delivery only.
    """
    scheme, host, *_ = egress.parse_url(url)
    if allow_private:
        return url
    if scheme != "https":
        raise egress.UrlRefused("Only https URLs are allowed for webhooks.")
    name = host.lower().rstrip(".")
    try:
        private = not is_public(name)
    except ValueError:  # no address
        private = f".{name}".endswith(".localhost")
    if private:
        raise egress.not_public(host)
    return url


def is_public(address: str) -> bool:
    """Whether an IP address is public, including IPv4 addresses embedded in IPv6."""
    return egress.is_public(ipaddress.ip_address(address.partition("%")[0]))


class _PublicOnly(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        except OSError:
            found = []  # same error as for private names, so that clients cannot enumerate those
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(map(is_public, addresses)):
            raise httpcore.ConnectError(NOT_PUBLIC)
        return await self._inner.connect_tcp(
            addresses[0], port, timeout, local_address, socket_options
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def open_client(allow_private: bool) -> httpx.AsyncClient:
    """Opens a client that ignores proxy settings and does not follow redirects."""
    transport = httpx.AsyncHTTPTransport(trust_env=False)
    if not allow_private:
        transport._pool._network_backend = _PublicOnly()  # httpx has no public API for this
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=None)
