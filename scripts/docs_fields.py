"""Tables of a model's fields for the reference: type, range, default and meaning."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from pydantic import BaseModel

from aps_cli.spec_option import choices, range_of
from aps_core.registry import Spec, json_schema

NAMES = {"string": "text", "array": "list"}
"""Types whose JSON name says less."""


def fields(path: str) -> str:
    """Renders the settings of the class at a dotted ``path``; for a family's root, of every member
    that comes with the package.
    """
    cls = resolve_name(path)
    if not (issubclass(cls, Spec) and cls.model_fields["type"].is_required()):
        return _table(cls, with_default=True)
    members = [cls.named(name) for name in sorted(cls.family)]
    return "\n\n".join(
        f"### `{member.model_fields['type'].default}`\n\n{member.summary()}\n\n"
        + _table(member, with_default=True)
        for member in members
        if member.__module__.startswith("aps_core.")
    )


def contents(path: str) -> str:
    """Renders the fields of a result or an answer."""
    return _table(resolve_name(path), with_default=False)


def _table(cls: type[BaseModel], *, with_default: bool) -> str:
    schema = json_schema(cls)
    heads = ["field", "type", *(["default"] if with_default else []), "meaning"]
    rows = [heads, ["---"] * len(heads)]
    for name, entry in schema["properties"].items():
        if "const" in entry:
            continue
        default = "needed" if name in schema.get("required", []) else _default(entry)
        kind = _kind(entry, schema.get("$defs", {}))
        description = entry.get("description", "")
        rows.append([f"`{name}`", kind, *([default] if with_default else []), description])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) if rows[2:] else "No fields."


def _kind(entry: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Type and range: ``integer, 1 to 128``; for a member of a family, that it has a ``type``."""
    entry = {**definitions.get(entry.get("$ref", "").rpartition("/")[2], {}), **entry}
    if "oneOf" in entry:
        return "object with `type`"
    if kinds := entry.get("anyOf"):
        return " or ".join(dict.fromkeys(_kind(kind, definitions) for kind in kinds))
    if offered := choices(entry):
        return " or ".join(f"`{choice}`" for choice in offered)
    name = entry.get("type", "any")
    return ", ".join(part for part in (NAMES.get(name, name), range_of(entry)) if part)


def _default(entry: dict[str, Any]) -> str:
    default = entry.get("default")
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return "" if default in (None, "", {}, []) else f"`{default}`"
