"""Fixtures for tests of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from service.access.keys import KeyStore, Scope, new_key
from tests.apis import running_api
from tests.service.internet import INSIDE, OUTSIDE, Server, served
from tests.stack import Stack


@pytest.fixture
def internet() -> Iterator[Server]:
    yield from served(OUTSIDE)


@pytest.fixture
def inside(internet: Server) -> Iterator[Server]:
    """A private server on the same port as the public one, so that only the address differs."""
    server = served(INSIDE, internet.server_address[1])
    secret = next(server)
    yield secret
    next(server, None)
    assert secret.seen == [], "a request got in"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log file of the API that requires keys."""
    return tmp_path_factory.mktemp("guarded") / "log"


@pytest.fixture(scope="module")
def guarded(running_stack: Stack, tokens: dict[str, str], log: Path) -> Iterator[httpx.Client]:
    """An API that requires keys, served by the stack's worker; its client keeps no cookies."""
    with running_api(running_stack.settings, log, auth="keys") as http:
        yield http


@pytest.fixture(scope="module")
def tokens(running_stack: Stack) -> Iterator[dict[str, str]]:
    """One key for each of two clients, and one with read access only."""
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
