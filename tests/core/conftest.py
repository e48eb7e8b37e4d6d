"""One thread and deterministic algorithms for the library's tests."""

from collections.abc import Iterator

import pytest

from aps_core.runtime.process import reproducible


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    with reproducible(threads=1):
        yield
