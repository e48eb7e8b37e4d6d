"""Engines of the embedded priors, loaded once in each process of the tests."""

from __future__ import annotations

import copy
from functools import cache

from aps_core.engines.engine import Engine, ImageEngine, TextEngine


@cache
def _loaded(prior: str) -> Engine:
    return Engine.load(prior)


def image_engine(prior: str = "embedded") -> ImageEngine:
    """A copy of its own, which a test may change, around the shared prior, which it may not."""
    engine = copy.copy(_loaded(prior))
    assert isinstance(engine, ImageEngine)
    return engine


def text_engine(prior: str = "embedded_text") -> TextEngine:
    """As :func:`image_engine`."""
    engine = copy.copy(_loaded(prior))
    assert isinstance(engine, TextEngine)
    return engine
