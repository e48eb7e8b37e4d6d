"""Command-line options generated from the registry: one for every field of any operator and of the sampler."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from pydantic import BaseModel

from aps_core.config import APSConfig
from aps_core.errors import InvalidSpec
from aps_core.operators import OperatorSpec

Command = Callable[..., Any]


def spec_options(command: Command) -> Command:
    """Adds ``--operator``, every operator field and every sampler field. A field that several operators share is one option."""
    command = sampler_options(APSConfig)(command)
    for name, users in reversed(_operator_fields().items()):
        description = OperatorSpec.family[users[0]].model_fields[name].description or ""
        command = click.option(_flag(name), f"operator__{name}", metavar="VALUE", help=f"{', '.join(users)}: {description}")(command)
    choices = click.Choice(sorted(OperatorSpec.family))
    return click.option("--operator", required=True, type=choices, help="How the picture was, or is to be, degraded.")(command)


def sampler_options(config: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds an option for every field of a sampler's settings; :func:`config_from` takes them out again."""

    def add(command: Command) -> Command:
        for name, field in reversed(config.model_fields.items()):
            option = click.option(_flag(name), f"sampler__{name}", metavar="VALUE", help=f"Sampler: {field.description} [default: {field.default}]")
            command = option(command)
        return command

    return add


def task_options(spec: type[BaseModel], *left_out: str) -> Callable[[Command], Command]:
    """Adds an option for every plain field of a task but those ``left_out``; :func:`fields_from` takes them out again."""

    def add(command: Command) -> Command:
        for name, field in reversed(spec.model_fields.items()):
            if name not in ("type", "sampler", *left_out):
                default = "" if field.default is None else f" [default: {field.default}]"
                command = click.option(f"--{name.replace('_', '-')}", f"field__{name}", metavar="VALUE", help=f"{field.description}{default}")(command)
        return command

    return add


def fields_from(options: dict[str, Any]) -> dict[str, Any]:
    """Takes a task's options out of ``options`` as the JSON of its fields."""
    return _taken(options, "field__")


def operator_from(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the operator's options out of ``options`` as the JSON of an operator spec.

    Raises:
        InvalidSpec: an option belongs to other operators only.
    """
    chosen = options.pop("operator")
    given = _taken(options, "operator__")
    for name in given:
        users = _operator_fields()[name]
        if chosen not in users:
            raise InvalidSpec(f"{_flag(name)} does not belong to operator '{chosen}' but to {', '.join(users)}.")
    return {"type": chosen, **given}


def config_from(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the sampler's options out of ``options`` as the JSON of its settings."""
    return _taken(options, "sampler__")


def field_lines(operator: str) -> list[str]:
    """An operator's options, a line each."""
    lines = []
    for name, field in OperatorSpec.named(operator).model_fields.items():
        if name != "type":
            default = "" if field.is_required() else f" [default: {field.default}]"
            lines.append(f"{_flag(name):<16} {field.description}{default}")
    return lines


def parse_value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, lists), else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _operator_fields() -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for name, cls in sorted(OperatorSpec.family.items()):
        for field in cls.model_fields:
            if field != "type":
                users.setdefault(field, []).append(name)
    return users


def _taken(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = [name for name in options if name.startswith(prefix)]
    values = {name.removeprefix(prefix): options.pop(name) for name in names}
    return {name: parse_value(value) for name, value in values.items() if value is not None}


# An operator's field keeps its name unless another option of the command already has it.
_TAKEN = {"mask": "--mask-source", "sigma": "--blur-sigma", "seed": "--operator-seed"}


def _flag(name: str) -> str:
    return _TAKEN.get(name, f"--{name.replace('_', '-')}")
