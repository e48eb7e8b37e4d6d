"""Fixtures of the service's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from internet import INSIDE, OUTSIDE, Server, served


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
