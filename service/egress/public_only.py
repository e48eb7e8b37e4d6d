"""Connections to addresses a client has named: public ones only, checked at the moment of
connecting.

A name is resolved once, every address it has must be public, and the connection goes to one of
those addresses: a name that resolves otherwise a moment later cannot lead inside.
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
    """``url`` as it is, if it may be called at all.

    Raises:
        UrlRefused: it is no https URL (or http, where private addresses are allowed), or carries
            credentials.
    """
    scheme, *_ = egress.parse_url(url)
    if scheme != "https" and not allow_private:
        raise egress.UrlRefused("Webhooks are sent to https URLs only.")
    return url


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, also behind the ways to write IPv4 in
    IPv6.
    """
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
            found = []  # not told apart from a private name, or clients could list ours
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(map(is_public, addresses)):
            raise httpcore.ConnectError(NOT_PUBLIC)
        return await self._inner.connect_tcp(
            addresses[0], port, timeout, local_address, socket_options
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def open_client(allow_private: bool) -> httpx.AsyncClient:
    """A client without proxies, cookies kept or redirects followed."""
    transport = httpx.AsyncHTTPTransport(trust_env=False)
    if not allow_private:
        transport._pool._network_backend = _PublicOnly()  # httpx offers no other way
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=None)
