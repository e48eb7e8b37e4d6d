"""A real API process with API keys for an attacker and a victim; no worker computes jobs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.abuse.attacked import Target, attacked
from tests.apis import running_api


@pytest.fixture(scope="package")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One service for all that leave it whole."""
    networks = ["127.0.0.0/8"]
    with attacked(
        tmp_path_factory.mktemp("abuse"), image_urls=True, egress_allow=networks, fetch_seconds=3
    ) as target:
        yield target


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[..., Any]:
    """A service of the test's own, to break."""
    return lambda **changes: attacked(tmp_path, **changes)


@pytest.fixture(scope="session")
def fake_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that moves the wall clock of the process that loads it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("clock") / "fake_clock.so"
    source = Path(__file__).with_name("fake_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture(scope="package")
def open_api(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another API of the same store, on loopback and without keys."""
    log = tmp_path_factory.mktemp("open") / "log"
    with running_api(target.settings, log, auth="auto") as http:
        yield str(http.base_url)
