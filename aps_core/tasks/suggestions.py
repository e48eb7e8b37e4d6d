"""Suggestions for fields that a task does not have, such as ``sampler.steps`` for ``step``."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from pydantic.fields import FieldInfo

from aps_core.registry import AnyOf
from aps_core.tasks.base import TaskSpec

SIMILARITY = 0.75
"""Smallest similarity of names, from 0 to 1."""


def nearest_field(task: str, name: str) -> str | None:
    """Path of the field of ``task`` whose name is most like ``name``: ``sampler.steps`` for
    ``step``. None for an unknown task, or if no name is similar.
    """
    if task not in TaskSpec.family:
        return None
    paths = _paths(task)
    near = get_close_matches(name, paths, 1, SIMILARITY)
    return paths[near[0]] if near else None


@cache
def _paths(task: str) -> dict[str, str]:
    """The path of every field by its own name; fields of the task itself come first."""
    fields = TaskSpec.named(task).model_fields
    paths = {name: name for name in fields}
    for name, field in fields.items():
        for inner in _inner_fields(field):
            paths.setdefault(inner, f"{name}.{inner}")
    return paths


def _inner_fields(field: FieldInfo) -> list[str]:
    family = next((extra.root for extra in field.metadata if isinstance(extra, AnyOf)), None)
    if family is not None:
        return [name for member in family.family.values() for name in member.model_fields]
    return list(getattr(field.annotation, "model_fields", {}))
