"""Browser sessions: a cookie in place of an API key, as EventSource and ``<img>`` cannot send one.

The page exchanges the key for a cookie once (:mod:`service.api.system.sessions`). Only the cookie's
hash and the key's id are stored, so revoking a key ends its sessions. Browsers attach cookies to
cross-site requests too, so state-changing requests must prove their origin (:func:`check_origin`).
"""

from __future__ import annotations

import hashlib
import secrets
from typing import cast

from fastapi import Request

from service.access.host_guard import origin_host
from service.access.keys import ApiKey, KeyStore
from service.api.problems.errors import Misdirected

COOKIE = "aps_session"
SESSION_SECONDS = 7 * 86_400
MAX_SESSIONS = 100
"""Maximum sessions per key; a new one ends the oldest."""
_SAFE_METHODS = ("GET", "HEAD")


class SessionStore:
    """The sessions of a service, stored next to its keys."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    def start(self, key: ApiKey) -> str:
        """Starts a session of ``key``; returns the cookie's value, which is not stored."""
        seconds, micros = self._keys.redis.time()
        token, started = secrets.token_urlsafe(32), f"{self._keys.prefix}sessions:{key.id}"
        with self._keys.redis.pipeline() as pipe:
            pipe.set(self._name(token), key.id, ex=SESSION_SECONDS)
            pipe.zadd(started, {self._name(token): seconds + micros / 1e6})
            pipe.expire(started, SESSION_SECONDS)
            pipe.zrange(started, 0, -MAX_SESSIONS - 1)
            *_, oldest = pipe.execute()
        if oldest:
            self._keys.redis.zrem(started, *oldest)
            self._keys.redis.delete(*oldest)
        return token

    def find(self, token: str) -> ApiKey | None:
        """The key of a session; None if either has expired or been revoked."""
        key_id = cast("bytes | None", self._keys.redis.get(self._name(token)))
        return self._keys.get(key_id.decode()) if key_id else None

    def end(self, token: str) -> None:
        """Ends a session."""
        self._keys.redis.delete(self._name(token))

    def _name(self, token: str) -> str:
        return f"{self._keys.prefix}session:{hashlib.sha256(token.encode()).hexdigest()}"


def check_origin(request: Request) -> None:
    """Checks that a state-changing request with a session cookie comes from this service's pages.

    Raises:
        Misdirected: the request comes from another site, or its origin is unknown.
    """
    if request.method in _SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    ours = (
        site == "same-origin"
        if site is not None
        else origin is not None and origin_host(origin) == request.headers.get("host")
    )
    if not ours:
        raise Misdirected(
            "With a session cookie, state-changing requests are accepted only from this service's"
            " own pages; send an API key instead."
        )
