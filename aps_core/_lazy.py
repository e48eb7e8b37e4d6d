"""Lazy imports of torch and of a package's public names.

The HTTP front end imports every spec of :mod:`aps_core` but computes nothing, and must run in a
container without torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)
        return getattr(module, name)


def lazy_import(name: str) -> Any:
    """Returns a proxy for module ``name`` that imports it at the first attribute access."""
    return _LazyModule(name)


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Returns a ``__getattr__`` for ``package`` that imports each name at its first use.

    ``homes`` maps module names, relative to the package, to the names they define.
    """
    module_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
