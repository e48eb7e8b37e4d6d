"""Sessions of browsers: a cookie that stands for an API key, which EventSource and pictures cannot
send.

The page exchanges the key for the cookie once (:mod:`service.api.session_routes`); what is kept
here is the cookie's hash and the key's id, so a revoked key ends its sessions. A browser attaches
cookies by itself, also to requests that another page makes: what changes something must say that it
comes from a page of ours (:func:`check_origin`).
"""

from __future__ import annotations

import hashlib
import secrets
from typing import cast

from fastapi import Request

from service.access.host_guard import origin_host
from service.access.keys import ApiKey, KeyStore
from service.api.problems import Misdirected

COOKIE = "aps_session"
SESSION_SECONDS = 7 * 86_400
MAX_SESSIONS = 100
"""Of one key; one more ends the oldest."""
_HARMLESS = ("GET", "HEAD")


class SessionStore:
    """The sessions of one service, beside its keys."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys

    def start(self, key: ApiKey) -> str:
        """A new session of ``key``: the cookie's value, which is stored nowhere."""
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
        """The key a session stands for, as long as both last."""
        key_id = cast("bytes | None", self._keys.redis.get(self._name(token)))
        return self._keys.get(key_id.decode()) if key_id else None

    def end(self, token: str) -> None:
        """Forgets a session."""
        self._keys.redis.delete(self._name(token))

    def _name(self, token: str) -> str:
        return f"{self._keys.prefix}session:{hashlib.sha256(token.encode()).hexdigest()}"


def check_origin(request: Request) -> None:
    """Checks that a request whose cookie the browser attached was made by a page of ours, unless it
    only reads.

    Raises:
        Misdirected: it says that it was not, or does not say.
    """
    if request.method in _HARMLESS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    ours = (
        site == "same-origin"
        if site is not None
        else origin is not None and origin_host(origin) == request.headers.get("host")
    )
    if not ours:
        raise Misdirected(
            "With a session's cookie, requests that change something are taken from pages of this"
            " service only; send an API key instead."
        )
