"""Fetches pictures from clients' URLs, if enabled: public addresses only, bounded size and time."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urljoin

from service.api.problems.errors import BodyTooLarge
from service.egress.requests import EgressFailed, Network, UrlRefused, destination, request
from service.settings import Settings

MAX_REDIRECTS = 3
CONCURRENT_FETCHES = 8
"""Concurrent fetches of all tenants together; see :mod:`service.uploads.lanes`."""
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"User-Agent": "aps", "Accept": "image/png, image/jpeg, image/webp"}


def fetch(url: str, name: str, settings: Settings, tls: ssl.SSLContext | None = None) -> bytes:
    """Fetches the bytes at ``url``, without checking their format. ``name`` is the field, for
    messages.

    Raises:
        UrlRefused: URLs are disabled, or this one or one it redirects to is not allowed.
        EgressFailed: the server does not respond with a file in time.
        BodyTooLarge: the file exceeds the size limit of uploads.
    """
    if not settings.image_urls:
        raise UrlRefused(
            f"'{name}' must be a data URI: data:image/png;base64,... (URLs are fetched only if"
            " APS_IMAGE_URLS is set)."
        )
    return _follow(url, name, settings, settings.egress_allow, tls)


def _follow(
    url: str, name: str, settings: Settings, allowed: Sequence[Network], tls: ssl.SSLContext | None
) -> bytes:
    over = time.monotonic() + settings.fetch_seconds
    for _ in range(MAX_REDIRECTS + 1):
        to = destination(url, allowed)
        with request(
            "GET", to, headers=_HEADERS, seconds=over - time.monotonic(), tls=tls
        ) as response:
            headers = {
                key.decode("latin-1").lower(): value.decode("latin-1")
                for key, value in response.headers
            }
            if response.status in _REDIRECTS and "location" in headers:
                url = _redirect(url, headers["location"])
                continue
            if response.status != 200:
                raise EgressFailed(f"'{name}': {to.host} answered with status {response.status}.")
            if headers.get("content-encoding", "identity") != "identity":
                raise EgressFailed(
                    f"'{name}': {to.host} sent a content encoding that was not asked for."
                )
            return _read(response.iter_stream(), name, settings.max_upload_bytes)
    raise EgressFailed(f"'{name}': more than {MAX_REDIRECTS} redirects.")


def _redirect(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise UrlRefused(f"The URL redirects to an invalid URL: {error}") from error


def _read(chunks: Iterator[bytes], name: str, limit: int) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > limit:
            raise BodyTooLarge(f"'{name}' has more bytes than the limit of {limit}.")
    return bytes(content)
