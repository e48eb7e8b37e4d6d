"""The first minutes of four kinds of users, walked in a browser and a shell."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.newcomers import table, walk
from tests.stack import Stack


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_nobody_meets_an_error_and_no_path_is_long(stack: Stack) -> None:
    paths = {path.who: path for path in walk(stack.url, short=True)}
    print(table(list(paths.values())))
    assert {who: path.errors for who, path in paths.items() if path.errors} == {}
    assert paths["photographer"].clicks <= 5
    assert paths["product engineer"].lines <= 4
    assert paths["researcher"].lines <= 5
