"""Command-line options generated from the registry: one for every field of a task, and of any
member of the families it chooses from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from aps_core.errors import InvalidSpec
from aps_core.operators import OperatorSpec
from aps_core.registry import AnyOf, Spec

OPERATOR = AnyOf(OperatorSpec, None)
Command = Callable[..., Any]
PICTURE = click.Path(exists=True, dir_okay=False, path_type=Path)


def spec_options(spec: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds an option for every field of a task's spec; :func:`json_of` turns them back into its
    JSON.
    """

    def add(command: Command) -> Command:
        for name, field in reversed(_own_fields(spec).items()):
            if anyof := family_of(field):
                command = family_options(name, anyof, field)(command)
            elif config := _settings(field):
                command = sampler_options(config)(command)
            elif field.annotation is bool:
                flag = (
                    f"{_plain(name)}/--no-{name.replace('_', '-')}"
                    if field.default
                    else _plain(name)
                )
                command = click.option(flag, name, is_flag=True, default=None, help=_help(field))(
                    command
                )
            else:
                metavar = "JSON" if _is_object(field) else "VALUE"
                command = click.option(
                    _plain(name),
                    name,
                    metavar=metavar,
                    required=field.is_required(),
                    help=_help(field),
                )(command)
        return command

    return add


def json_of(spec: type[BaseModel], options: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a task's spec from the options of :func:`spec_options`; what was not given is
    left out.

    Raises:
        InvalidSpec: an option belongs to other operators only, or is no JSON where an object is
            needed.
    """
    given: dict[str, Any] = {}
    for name, field in _own_fields(spec).items():
        if anyof := family_of(field):
            if (member := member_from(name, anyof, options)) is not None:
                given[name] = member
        elif _settings(field):
            given[name] = config_from(options)
        elif options.get(name) is not None:
            given[name] = options[name] if _is_text(field) else parse_value(options[name])
    return {"prompt": options["prompt"], **given} if options.get("prompt") is not None else given


def prompt_is_argument(spec: type[BaseModel]) -> bool:
    """Whether a task is about its prompt: it takes no picture, or cannot do without a prompt."""
    prompt = spec.model_fields.get("prompt")
    if prompt is None:
        return False
    return not getattr(spec, "pictures", {}) or prompt.is_required()


def family_options(field: str, anyof: AnyOf, info: FieldInfo) -> Callable[[Command], Command]:
    """Adds an option that chooses a member of a family, and every field of any member. A field that
    several members share is one option.
    """

    def add(command: Command) -> Command:
        for name, users in reversed(_fields_of(anyof.root).items()):
            first = anyof.default if anyof.default in users else users[0]
            described = anyof.root.family[first].model_fields[name].description or ""
            owners = "" if len(users) == len(anyof.root.family) > 1 else f"{', '.join(users)}: "
            command = click.option(
                _flag(name, field),
                f"{field}__{name}",
                metavar="VALUE",
                help=f"{owners}{described}",
            )(command)
        names = sorted(anyof.root.family)
        about = (info.description or "").split(";")[0].rstrip(".")
        return click.option(
            _plain(field),
            required=anyof.default is None,
            type=click.Choice(names),
            metavar="NAME",
            help=f"{about}: {', '.join(names)}.",
        )(command)

    return add


def sampler_options(config: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds an option for every field of a sampler's settings; :func:`config_from` takes them out
    again.
    """

    def add(command: Command) -> Command:
        for name, field in reversed(config.model_fields.items()):
            command = click.option(
                _plain(name), f"sampler__{name}", metavar="VALUE", help=_help(field)
            )(command)
        return command

    return add


def operator_from(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the operator's options out of ``options`` as the JSON of an operator spec.

    Raises:
        InvalidSpec: an option belongs to other operators only.
    """
    return member_from("operator", OPERATOR, options) or {}


def member_from(field: str, anyof: AnyOf, options: dict[str, Any]) -> dict[str, Any] | None:
    """Takes a family's options out of ``options`` as the JSON of the chosen member; None where none
    was given.

    Raises:
        InvalidSpec: an option belongs to other members only.
    """
    named = options.pop(field, None)
    given = _taken(options, f"{field}__")
    chosen = named or anyof.default
    for name in given:
        users = _fields_of(anyof.root)[name]
        if chosen not in users:
            raise InvalidSpec(
                f"{_flag(name, field)} does not belong to {field} '{chosen}' but to"
                f" {', '.join(users)}."
            )
    return {**({"type": named} if named else {}), **given} or None


def config_from(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the sampler's options out of ``options`` as the JSON of its settings."""
    return _taken(options, "sampler__")


class Verb(click.Command):
    """A command whose help shows its many options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See :meth:`click.Command.format_options`."""
        titles = {
            "operator": "Operator (each belongs to the operators named)",
            "sampler": "Sampler (left out: what the prior recommends, see 'aps capabilities')",
            "loss": "Loss (left out: what the prior recommends)",
        }
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is None or param.name is None:
                continue
            field, nested, _ = param.name.partition("__")
            family = field if nested or field in titles else ""
            title = titles.get(family, f"{family.capitalize()}") if family else "Options"
            sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def operator_options(command: Command) -> Command:
    """Adds ``--operator`` and every operator field."""
    info = FieldInfo(description="How the picture was, or is to be, degraded")
    return family_options("operator", OPERATOR, info)(command)


def field_lines(operator: str) -> list[str]:
    """An operator's options, a line each."""
    lines = []
    for name, field in OperatorSpec.named(operator).model_fields.items():
        if name != "type":
            default = "" if field.is_required() else f" [default: {field.default}]"
            lines.append(f"{_flag(name, 'operator'):<16} {field.description}{default}")
    return lines


def parse_value(text: Any) -> Any:
    """JSON where it is JSON (numbers, true, lists), else the text itself; what is no text stays."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _own_fields(spec: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields that are options: not the type, nor a prompt that is the command's argument."""
    return {
        name: field
        for name, field in spec.model_fields.items()
        if name != "type" and not (name == "prompt" and prompt_is_argument(spec))
    }


def _settings(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field that holds settings of its own, one option each."""
    kind = field.annotation
    return (
        kind
        if isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, Spec)
        else None
    )


def _is_object(field: FieldInfo) -> bool:
    """Whether only an object will do: a spec of some family."""
    return any(
        isinstance(kind, type) and issubclass(kind, Spec)
        for kind in (field.annotation, *get_args(field.annotation))
    )


def _is_text(field: FieldInfo) -> bool:
    return field.annotation is str


def _help(field: FieldInfo) -> str:
    default = None if field.is_required() or field.default is PydanticUndefined else field.default
    return f"{field.description}" + (
        ""
        if default is None or default == "" or isinstance(default, bool)
        else f" [default: {default}]"
    )


def _plain(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def family_of(field: FieldInfo) -> AnyOf | None:
    """The family of a field that always holds one of its members."""
    return next((extra for extra in field.metadata if isinstance(extra, AnyOf)), None)


def _fields_of(root: type[Spec]) -> dict[str, list[str]]:
    """Every field of any member of a family, and the members that have it."""
    users: dict[str, list[str]] = {}
    for name, cls in sorted(root.family.items()):
        for field in cls.model_fields:
            if field != "type":
                users.setdefault(field, []).append(name)
    return users


def _taken(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = [name for name in options if name.startswith(prefix)]
    values = {name.removeprefix(prefix): options.pop(name) for name in names}
    return {name: parse_value(value) for name, value in values.items() if value is not None}


# A member's field keeps its name unless another option of the command already has it.
_TAKEN = {
    ("operator", "mask"): "--mask-source",
    ("operator", "sigma"): "--blur-sigma",
    ("operator", "seed"): "--operator-seed",
}


def _flag(name: str, field: str) -> str:
    return _TAKEN.get((field, name), _plain(name))
