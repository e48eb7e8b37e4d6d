"""Options made from specs: help with type, range and default, and names of a family's members."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem
from pydantic import BaseModel

from aps_core.registry import json_schema

TYPES = {"integer": "INTEGER", "number": "NUMBER", "boolean": "true|false", "string": "TEXT"}


class MemberName(click.Choice[str]):
    """Name of a family's member."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Says what to do if nothing is known about the picture."""
        names = ", ".join(self.choices)
        if "auto" not in self.choices:
            return f"Choose from: {names}."
        return (
            "If you do not know what happened to the picture, add --operator auto: it finds out by"
            f" itself. If you know, name it: {names}."
        )


class SpecOption(click.Option):
    """Reads the JSON Schema of ``field`` of ``model``, but only for help and completion: building
    schemas takes time.
    """

    def __init__(
        self, *args: Any, model: type[BaseModel], field: str, with_default: bool, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.model = model
        self.field = field
        self.with_default = with_default

    @property
    def schema(self) -> dict[str, Any]:
        """Schema of the field, with its reference resolved."""
        whole = json_schema(self.model)
        definitions = whole.get("$defs", {})

        def resolved(schema: dict[str, Any]) -> dict[str, Any]:
            reference = schema.get("$ref", "").rpartition("/")[2]
            return {**definitions.get(reference, {}), **schema}

        return resolved(resolved(whole)["properties"][self.field])

    def make_metavar(self, ctx: click.Context) -> str:
        """Type or choices, such as ``INTEGER`` or ``fast|balanced|best``."""
        return _type_of(self.schema)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Adds range and default to the description."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        told = self.with_default and "x-chosen-unless" not in self.schema  # else it depends
        default = self.schema.get("default") if told else None
        shown = default not in (None, "", False) and not isinstance(default, dict)
        facts = [range_of(self.schema), f"default: {default}" if shown else ""]
        extra = "; ".join(fact for fact in facts if fact)
        return record[0], f"{record[1]}  [{extra}]" if extra else record[1]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes the choices of an enumeration."""
        names = [str(choice) for choice in choices(self.schema)]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def choices(schema: dict[str, Any]) -> list[Any]:
    """All values that the schema allows, if it lists them."""
    return list(schema.get("enum", [schema["const"]] if "const" in schema else []))


def _type_of(schema: dict[str, Any]) -> str:
    if offered := choices(schema):
        return "|".join(str(choice) for choice in offered)
    if kinds := schema.get("anyOf"):
        return "|".join(_type_of(kind) for kind in kinds if kind.get("type") != "null")
    return TYPES.get(schema.get("type", ""), "JSON")


def range_of(schema: dict[str, Any]) -> str:
    """Bounds in words: ``1 to 128``, ``above 0 to 20``, ``at least 0``."""
    for kind in schema.get("anyOf", []):
        if found := range_of(kind):
            return found
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if schema.get("type") == "integer" and below is not None:
        schema, below = {**schema, "maximum": below - 1}, None
    low = f"above {above:g}" if above is not None else _number(schema.get("minimum"))
    high = f"below {below:g}" if below is not None else _number(schema.get("maximum"))
    if low and high:
        return f"{low} to {high}" if below is None else f"{low}, {high}"
    if low:
        return low if above is not None else f"at least {low}"
    return high if below is not None or not high else f"at most {high}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"
