"""Fixtures of the library's tests: one thread, deterministic algorithms, and tensors of the shapes
that their names promise.
"""

from collections.abc import Iterator

import pytest

from aps_core.runtime.process import reproducible
from tests.core.shape_names import checked


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    with reproducible(threads=1):
        yield


@pytest.fixture(autouse=True)
def shapes_are_as_named() -> Iterator[None]:
    with checked():
        yield
