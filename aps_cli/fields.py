"""Command-line options generated from the specs of tasks, operators and samplers."""

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
    """Adds one option per field of a task's spec; :func:`json_of` is the inverse."""

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
    """Builds the JSON of a task's spec from the options given on the command line.

    Raises:
        InvalidSpec: an option does not apply to the selected operator.
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
    """Whether the prompt is positional: the task takes no picture, or requires a prompt."""
    return not getattr(spec, "pictures", {}) or spec.model_fields["prompt"].is_required()


def operator_options(command: Command) -> Command:
    """Adds ``--operator`` and one option per operator field; operators share equally named ones."""
    for name, users in reversed(_operator_fields().items()):
        description = OperatorSpec.family[users[0]].model_fields[name].description or ""
        command = click.option(
            _flag(name),
            f"operator__{name}",
            metavar="VALUE",
            help=f"{', '.join(users)}: {description}",
        )(command)
    names = sorted(OperatorSpec.family)
    description = f"The degradation: {', '.join(names)}."
    return click.option(
        "--operator", required=True, type=click.Choice(names), metavar="NAME", help=description
    )(command)


def sampler_options(config: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds one option per sampler setting; :func:`config_from` is the inverse."""

    def add(command: Command) -> Command:
        for name, field in reversed(config.model_fields.items()):
            command = click.option(
                _plain(name), f"sampler__{name}", metavar="VALUE", help=_help(field)
            )(command)
        return command

    return add


def operator_from(options: dict[str, Any]) -> dict[str, Any]:
    """Removes the operator's options from ``options`` and returns the JSON of its spec.

    Raises:
        InvalidSpec: an option does not apply to the selected operator.
    """
    chosen = options.pop("operator")
    given = _pop_prefixed(options, "operator__")
    for name in given:
        users = _operator_fields()[name]
        if chosen not in users:
            raise InvalidSpec(
                f"{_flag(name)} is not an option of operator '{chosen}'; it applies to"
                f" {', '.join(users)}."
            )
    return {"type": chosen, **given}


def config_from(options: dict[str, Any]) -> dict[str, Any]:
    """Removes the sampler's options from ``options`` and returns the JSON of its settings."""
    return _pop_prefixed(options, "sampler__")


class SectionedCommand(click.Command):
    """A command whose help lists general, operator and sampler options in separate sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one section per group of options, chosen by the prefix of the parameter name."""
        sampler = (
            "Sampler (default: what the prior recommends, see 'aps capabilities', else the value"
            " shown)"
        )
        sections: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            "Operator (each option names the operators it applies to)": [],
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
    """Describes the options of an operator, one per line."""
    lines = []
    for name, field in OperatorSpec.named(operator).model_fields.items():
        if name != "type":
            default = "" if field.is_required() else f" [default: {field.default}]"
            lines.append(f"{_flag(name):<16} {field.description}{default}")
    return lines


def parse_value(text: Any) -> Any:
    """Parses text as JSON if possible (numbers, true, lists); returns other values unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _own_fields(spec: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields that become options: all except ``type`` and a positional prompt."""
    return {
        name: field
        for name, field in spec.model_fields.items()
        if name != "type" and not (name == "prompt" and prompt_is_argument(spec))
    }


def _settings(field: FieldInfo) -> type[BaseModel] | None:
    """Model of a nested settings field, whose fields become options; None for other fields."""
    kind = field.annotation
    return (
        kind
        if isinstance(kind, type) and issubclass(kind, BaseModel) and not issubclass(kind, Spec)
        else None
    )


def _is_object(field: FieldInfo) -> bool:
    """Whether the value of the field is a spec, given as a JSON object."""
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


def _pop_prefixed(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = [name for name in options if name.startswith(prefix)]
    values = {name.removeprefix(prefix): options.pop(name) for name in names}
    return {name: parse_value(value) for name, value in values.items() if value is not None}


# Names of operator options that would clash with another option of the command.
_RENAMED = {"mask": "--mask-source", "sigma": "--blur-sigma", "seed": "--operator-seed"}


def _flag(name: str) -> str:
    return _RENAMED.get(name, _plain(name))
