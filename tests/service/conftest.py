"""Fixtures of the service's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from apis import running_api
from internet import INSIDE, OUTSIDE, Server, served
from redis import Redis
from stack import Stack

from service.access.keys import KeyStore, Scope, new_key


@pytest.fixture
def internet() -> Iterator[Server]:
    yield from served(OUTSIDE)


@pytest.fixture
def inside(internet: Server) -> Iterator[Server]:
    """On the same port, so that only the address tells them apart."""
    server = served(INSIDE, internet.server_address[1])
    secret = next(server)
    yield secret
    next(server, None)
    assert secret.seen == [], "a request got in"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the API that wants keys."""
    return tmp_path_factory.mktemp("guarded") / "log"


@pytest.fixture(scope="module")
def guarded(running_stack: Stack, tokens: dict[str, str], log: Path) -> Iterator[httpx.Client]:
    """An API that wants keys, with the stack's worker behind it; its client keeps no cookies."""
    with running_api(running_stack.settings, log, auth="keys") as http:
        yield http


@pytest.fixture(scope="module")
def tokens(running_stack: Stack) -> Iterator[dict[str, str]]:
    """A key each of two clients, and one that may only read."""
    every: frozenset[Scope] = frozenset({"read", "write"})
    with Redis.from_url(running_stack.settings.redis_url) as redis:
        store, made = KeyStore(redis), {}
        for name, scopes in (
            ("ann", every),
            ("bob", every),
            ("reader", frozenset[Scope]({"read"})),
        ):
            made[name], key = new_key(name, scopes)
            store.add(key)
        yield made
        redis.delete("aps:apikeys")
