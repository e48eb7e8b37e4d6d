"""Command-line options generated from the registry: one for every field of a task, of any operator
and of the sampler.
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
from aps_core.registry import Spec

Command = Callable[..., Any]
PICTURE = click.Path(exists=True, dir_okay=False, path_type=Path)


def spec_options(spec: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds an option for every field of a task's spec; :func:`json_of` turns them back into its
    JSON.
    """

    def add(command: Command) -> Command:
        for name, field in reversed(_own_fields(spec).items()):
            if name == "operator":
                command = operator_options(command)
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
        if name == "operator":
            given[name] = operator_from(options)
        elif _settings(field):
            given[name] = config_from(options)
        elif options.get(name) is not None:
            given[name] = options[name] if _is_text(field) else parse_value(options[name])
    return {"prompt": options["prompt"], **given} if options.get("prompt") is not None else given


def prompt_is_argument(spec: type[BaseModel]) -> bool:
    """Whether a task is about its prompt: it takes no picture, or cannot do without a prompt."""
    return not getattr(spec, "pictures", {}) or spec.model_fields["prompt"].is_required()


def operator_options(command: Command) -> Command:
    """Adds ``--operator`` and every operator field. A field that several operators share is one
    option.
    """
    for name, users in reversed(_operator_fields().items()):
        description = OperatorSpec.family[users[0]].model_fields[name].description or ""
        command = click.option(
            _flag(name),
            f"operator__{name}",
            metavar="VALUE",
            help=f"{', '.join(users)}: {description}",
        )(command)
    names = sorted(OperatorSpec.family)
    told = f"How the picture was, or is to be, degraded: {', '.join(names)}."
    return click.option(
        "--operator", required=True, type=click.Choice(names), metavar="NAME", help=told
    )(command)


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
    chosen = options.pop("operator")
    given = _taken(options, "operator__")
    for name in given:
        users = _operator_fields()[name]
        if chosen not in users:
            raise InvalidSpec(
                f"{_flag(name)} does not belong to operator '{chosen}' but to {', '.join(users)}."
            )
    return {"type": chosen, **given}


def config_from(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the sampler's options out of ``options`` as the JSON of its settings."""
    return _taken(options, "sampler__")


class Verb(click.Command):
    """A command whose help shows its many options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See :meth:`click.Command.format_options`."""
        sampler = (
            "Sampler (left out: what the prior recommends, see 'aps capabilities', or else the"
            " default)"
        )
        sections: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            "Operator (each belongs to the operators named)": [],
            sampler: [],
        }
        titles = list(sections)
        for param in self.get_params(ctx):
            if (
                isinstance(param, click.Option)
                and (record := param.get_help_record(ctx)) is not None
                and param.name is not None
            ):
                place = (
                    1
                    if param.name.startswith("operator__")
                    else 2
                    if param.name.startswith("sampler__")
                    else 0
                )
                sections[titles[place]].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def field_lines(operator: str) -> list[str]:
    """An operator's options, a line each."""
    lines = []
    for name, field in OperatorSpec.named(operator).model_fields.items():
        if name != "type":
            default = "" if field.is_required() else f" [default: {field.default}]"
            lines.append(f"{_flag(name):<16} {field.description}{default}")
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
    return _TAKEN.get(name, _plain(name))
