"""Imports torch at first use, so that specs and their JSON Schemas need no torch.

The HTTP front end imports every spec of :mod:`aps_core` but computes nothing; a container without
torch must be able to do the same.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)
        return getattr(module, name)


def lazy_import(name: str) -> Any:
    """Returns a stand-in for module ``name`` that imports it when an attribute is first read."""
    return _LazyModule(name)
