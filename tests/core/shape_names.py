"""Checks that tensors have the shapes their names promise.

The library names a tensor after its shape: ``phi_BLK`` has three dimensions, and within a function
``B`` is the same number in ``phi_BLK`` and ``z_BL`` (the legend is in :mod:`aps_core.types`). While
:func:`checked` is active, every function of the library is examined when it returns: its arguments
and its local variables. Annotations for a shape checker would repeat the names, and could not cover
the variables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import aps_core

CORE = str(Path(aps_core.__file__).parent)
NAME = re.compile(r"[a-z]_((?:[A-Z]|\d)+)$")
FREE = "CHWN"
"""Letters whose size may differ: pictures and measurements have different channels and sides, and
N counts different things.
"""


class Watch:
    """What :func:`checked` has seen."""

    def __init__(self) -> None:
        self.names = 0
        """Number of tensors examined."""
        self.wrong: set[str] = set()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Examines a function of the library that returns."""
        if event == "return" and (names := promised(frame.f_code)):
            self.examine(frame, names)

    def examine(self, frame: FrameType, names: tuple[tuple[str, str], ...]) -> None:
        """Compares the tensors among the local variables with their names and one another."""
        sizes: dict[str, int] = {}
        values = frame.f_locals
        for name, letters in names:
            value = values.get(name)
            if not isinstance(value, torch.Tensor):
                continue
            self.names += 1
            problem = disagreement(letters, tuple(value.shape), sizes)
            if problem:
                code = frame.f_code
                self.wrong.add(f"{code.co_filename}:{code.co_qualname}: {name} {problem}")


def disagreement(letters: str, shape: tuple[int, ...], sizes: dict[str, int]) -> str:
    """How a shape contradicts its name, or ``sizes`` from other names; empty if it does not. A
    dimension of size 1 may be broadcast.
    """
    if len(letters) != len(shape):
        return f"has the shape {shape}"
    for letter, size in zip(letters, shape, strict=True):
        expected = int(letter) if letter.isdigit() else sizes.get(letter, size)
        if size not in (1, expected) and expected != 1:
            return f"has the shape {shape}, but {letter} is {expected}"
        if letter not in FREE and not letter.isdigit():
            sizes[letter] = max(size, expected)
    return ""


@cache
def promised(code: CodeType) -> tuple[tuple[str, str], ...]:
    """Variables of a function of the library whose names end with a shape."""
    if not code.co_filename.startswith(CORE):
        return ()
    found = ((name, NAME.search(name)) for name in code.co_varnames)
    return tuple((name, match[1]) for name, match in found if match)


@contextmanager
def checked() -> Iterator[Watch]:
    """Examines every call of the library's functions, and fails if a tensor has another shape than
    its name says.
    """
    watch, before = Watch(), sys.getprofile()
    sys.setprofile(watch.profile)
    try:
        yield watch
    finally:
        sys.setprofile(before)
    assert not watch.wrong, "\n".join(sorted(watch.wrong))
