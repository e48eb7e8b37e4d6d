"""Requests to URLs supplied by clients: only to public addresses, never into a private network.

Each host name is resolved once, all of its addresses must be public, and the connection uses the
address that was checked. A second lookup with another result (DNS rebinding) cannot happen.
Redirects are not followed here; callers check each new URL. Proxy settings of the environment are
ignored. Networks in ``APS_EGRESS_ALLOW`` are exempt, and allow plain HTTP and any port.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpcore

from aps_core.errors import APSError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

CONNECT_SECONDS = 5
MAX_URL_LENGTH = 2048
_PORTS = {"https": 443, "http": 80}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*\.?", re.IGNORECASE)
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-f]*)\.?", re.IGNORECASE)
"""Some parsers treat a host whose last label matches this as an IPv4 address, so it must be a valid
one.
"""

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_REFUSED: tuple[Network, ...] = (
    ipaddress.IPv4Network(
        "168.63.129.16/32"
    ),  # Azure's platform service: formally public, but internal
    ipaddress.IPv4Network(
        "192.0.0.0/24"
    ),  # protocol assignments, including Oracle's metadata service
    ipaddress.IPv4Network("192.88.99.0/24"),  # 6to4 relays
    ipaddress.IPv6Network("::/96"),  # IPv4-compatible
    ipaddress.IPv6Network("2001::/32"),  # Teredo
    ipaddress.IPv6Network("2002::/16"),  # 6to4
    ipaddress.IPv6Network("fec0::/10"),  # site-local
    ipaddress.IPv6Network("5f00::/16"),  # segment routing
)


class UrlRefused(APSError):
    """The URL is malformed, or does not lead to a public address."""

    code = "url_not_allowed"
    title = "The URL is not allowed"


class EgressFailed(APSError):
    """The server did not send a valid HTTP response in time."""

    code = "fetch_failed"
    title = "The URL could not be fetched"
    retryable = True


@dataclass(frozen=True)
class Destination:
    """A checked URL and the IP address to connect to."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""
    address: str


def is_public(address: Address) -> bool:
    """Whether an IP address is public, including IPv4 addresses embedded in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        wrapped = address.ipv4_mapped
        if wrapped is None and any(address in network for network in _NAT64):
            wrapped = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if wrapped is not None:
            return is_public(wrapped)
        if (
            int(address) >> 32 & 0xFDFFFFFF == 0x00005EFE
        ):  # ISATAP: an IPv4 address behind 0:5efe or 200:5efe
            return False
    outside = address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    )
    return outside and not any(
        address in network for network in _REFUSED if network.version == address.version
    )


def destination(url: str, allowed: Sequence[Network] = ()) -> Destination:
    """Parses a URL strictly, resolves its host and checks all of its addresses.

    Raises:
        UrlRefused: the URL is not allowed. The message does not reveal whether a name exists.
    """
    scheme, host, port, target = parse_url(url)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise not_public(host) from error
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    exempt = bool(addresses) and all(
        any(address in network for network in allowed) for address in addresses
    )
    if not addresses or not (exempt or all(map(is_public, addresses))):
        raise not_public(host)
    if not exempt and (scheme, port) != ("https", 443):
        raise UrlRefused(f"Only HTTPS on port 443 is allowed, not {scheme} on port {port}.")
    return Destination(
        scheme=scheme, host=host, port=port, target=target, address=str(addresses[0])
    )


@contextmanager
def request(
    method: str,
    to: Destination,
    *,
    headers: Mapping[str, str],
    seconds: float,
    content: bytes = b"",
    tls: ssl.SSLContext | None = None,
) -> Iterator[httpcore.Response]:
    """Sends one request and yields its streaming response. ``seconds`` limits the whole exchange.
    TLS certificates are verified for the host name.

    Raises:
        EgressFailed: there is no valid HTTP response in time.
    """
    origin = httpcore.Origin(to.scheme.encode(), to.host.encode(), to.port)
    backend = _Pinned(to.address, time.monotonic() + seconds)
    netloc = (
        _bracketed(to.host) if to.port == _PORTS[to.scheme] else f"{_bracketed(to.host)}:{to.port}"
    )
    url = httpcore.URL(
        scheme=to.scheme.encode(), host=to.host.encode(), port=to.port, target=to.target.encode()
    )
    sent = {
        "Host": netloc,
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Content-Length": str(len(content)),
        **headers,
    }
    timeouts = {"timeout": {"connect": CONNECT_SECONDS, "read": seconds, "write": seconds}}
    try:
        with (
            httpcore.HTTPConnection(
                origin, ssl_context=tls or ssl.create_default_context(), network_backend=backend
            ) as connection,
            connection.stream(
                method, url, headers=list(sent.items()), content=content, extensions=timeouts
            ) as response,
        ):
            yield response
    except (
        httpcore.NetworkError,
        httpcore.TimeoutException,
        httpcore.ProtocolError,
        ssl.SSLError,
    ) as error:
        raise EgressFailed(
            f"{to.host} did not respond correctly: {type(error).__name__}."
        ) from error


class _Pinned(httpcore.NetworkBackend):
    """Connects to one fixed IP address for any host name; all operations end at the deadline."""

    def __init__(self, address: str, deadline: float) -> None:
        self.address = address
        self.deadline = deadline
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> _Bounded:
        """Connects to the pinned address instead of ``host``."""
        return _Bounded(
            self._inner.connect_tcp(
                self.address, port, _left(self.deadline, timeout), local_address, socket_options
            ),
            self.deadline,
        )


class _Bounded(httpcore.NetworkStream):
    """A connection with an overall deadline, which slow trickles of bytes cannot extend."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: float) -> None:
        self._inner = inner
        self.deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads at most ``max_bytes`` before the deadline."""
        return self._inner.read(max_bytes, _left(self.deadline, timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Writes the buffer before the deadline."""
        self._inner.write(buffer, _left(self.deadline, timeout))

    def close(self) -> None:
        """Closes the connection."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> _Bounded:
        """Starts TLS; the returned stream keeps the deadline."""
        return _Bounded(
            self._inner.start_tls(ssl_context, server_hostname, _left(self.deadline, timeout)),
            self.deadline,
        )

    def get_extra_info(self, info: str) -> Any:
        """Passes the request on to the underlying stream."""
        return self._inner.get_extra_info(info)


def _left(deadline: float, timeout: float | None) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the deadline has passed")
    return left if timeout is None else min(left, timeout)


def parse_url(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port, and path with query of an unambiguous URL.

    Raises:
        UrlRefused: it is malformed, or neither http nor https.
    """
    if len(url) > MAX_URL_LENGTH or not url.isascii() or re.search(r"[\s\\\x00-\x20\x7f]", url):
        raise UrlRefused(
            f"A URL may have at most {MAX_URL_LENGTH} ASCII characters, without spaces or"
            " backslashes; percent-encode other characters."
        )
    try:
        parsed = urlsplit(url)
        host, port = parsed.hostname or "", parsed.port
    except ValueError as error:
        raise UrlRefused(f"This is not a URL: {error}") from error
    scheme = parsed.scheme.lower()
    if scheme not in _PORTS:
        raise UrlRefused("Only https URLs are allowed.")
    if "@" in parsed.netloc:
        raise UrlRefused("A URL must not contain a user name or password.")
    if port == 0 or not (
        _literal(host)
        if ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2] or host)
        else _NAME.fullmatch(host)
    ):
        raise UrlRefused("The URL's host is neither a valid name nor a standard IP address.")
    target = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
    return scheme, host, port or _PORTS[scheme], target


def _literal(host: str) -> bool:
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def not_public(host: str) -> UrlRefused:
    """Error for a host that is or has a private address; it does not tell whether it exists."""
    return UrlRefused(f"'{host}' does not lead to a public address.")
