"""Command-line options generated from the specs of tasks and of the families they choose from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from aps_cli.files import PictureFile
from aps_cli.spec_option import MemberName, SpecOption
from aps_core.errors import InvalidSpec
from aps_core.registry import AnyOf, Spec

Command = Callable[..., Any]
PICTURE = PictureFile()


def spec_options(spec: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds one option per field of a task's spec; :func:`json_of` is the inverse."""

    def add(command: Command) -> Command:
        for name, field in reversed(_own_fields(spec).items()):
            if anyof := family_of(field):
                command = family_options(name, anyof, field)(command)
            elif config := _settings(field):
                command = sampler_options(config)(command)
            elif field.annotation is bool:
                words = (
                    f"{_plain(name)}/--no-{name.replace('_', '-')}"
                    if field.default
                    else _plain(name)
                )
                command = click.option(
                    words, name, is_flag=True, default=None, help=field.description
                )(command)
            else:
                command = click.option(
                    _plain(name),
                    name,
                    cls=SpecOption,
                    model=spec,
                    field=name,
                    with_default=True,
                    callback=_member if _is_member(field) else None,
                    required=field.is_required(),
                    help=field.description,
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
        if anyof := family_of(field):
            if (member := member_from(name, anyof, options)) is not None:
                given[name] = member
        elif _settings(field):
            given[name] = config_from(options)
        elif options.get(name) is not None:
            given[name] = _value(field, options[name])
    return {"prompt": options["prompt"], **given} if options.get("prompt") is not None else given


def _value(field: FieldInfo, text: Any) -> Any:
    """JSON of the value of an option; where several texts are possible, one needs no brackets."""
    value = text if field.annotation is str else parse_value(text)
    several = get_origin(field.annotation) is tuple
    return [text] if several and not isinstance(value, list) else value


def prompt_is_argument(spec: type[BaseModel]) -> bool:
    """Whether the prompt is positional: the task takes no picture, or requires a prompt."""
    prompt = spec.model_fields.get("prompt")
    if prompt is None:
        return False
    return not getattr(spec, "pictures", {}) or prompt.is_required()


def family_options(
    field: str, anyof: AnyOf, info: FieldInfo, members: Sequence[str] | None = None
) -> Callable[[Command], Command]:
    """Adds an option that selects a member of a family, and one option per field of its members.

    Members share the options of equally named fields. Default of ``members``: all.
    """

    def add(command: Command) -> Command:
        for name, users in reversed(_fields_of(anyof.root).items()):
            first = anyof.default if anyof.default in users else users[0]
            command = click.option(
                flag(name, field),
                f"{field}__{name}",
                cls=SpecOption,
                model=anyof.root.family[first],
                field=name,
                with_default=anyof.default is None,  # others are the prior's to recommend
                help=_described(anyof.root, name, users),
            )(command)
        names = sorted(members or anyof.root.family)
        about = (info.description or "").split(";")[0].rstrip(".")
        return click.option(
            _plain(field),
            required=anyof.default is None,
            type=MemberName(names),
            metavar="NAME",
            help=f"{about}: {', '.join(names)}.",
        )(command)

    return add


def sampler_options(config: type[BaseModel]) -> Callable[[Command], Command]:
    """Adds one option per sampler setting; :func:`config_from` is the inverse."""

    def add(command: Command) -> Command:
        for name, field in reversed(config.model_fields.items()):
            if name != "type":
                command = click.option(
                    _plain(name),
                    f"sampler__{name}",
                    cls=SpecOption,
                    model=config,
                    field=name,
                    with_default=False,
                    callback=_member if _is_member(field) else None,
                    help=field.description,
                )(command)
        return command

    return add


def _member(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
    return member_fields(text)


def member_fields(text: str | None) -> Any:
    """JSON of a member of a family, given by name or as a JSON object."""
    value = parse_value(text)
    return {"type": value} if isinstance(value, str) else value


def member_from(field: str, anyof: AnyOf, options: dict[str, Any]) -> dict[str, Any] | None:
    """Removes a family's options from ``options`` and returns the JSON of the selected member.

    Returns None if no option of the family was given.

    Raises:
        InvalidSpec: an option does not apply to the selected member.
    """
    named = options.pop(field, None)
    given = _pop_prefixed(options, f"{field}__")
    chosen = named or anyof.default
    for name in given:
        users = _fields_of(anyof.root)[name]
        if chosen not in users:
            raise InvalidSpec(
                f"{flag(name, field)} is not an option of {field} '{chosen}'; it applies to"
                f" {', '.join(users)}."
            )
    return {**({"type": named} if named else {}), **given} or None


def config_from(options: dict[str, Any]) -> dict[str, Any]:
    """Removes the sampler's options from ``options`` and returns the JSON of its settings."""
    return _pop_prefixed(options, "sampler__")


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
    """Model of a nested settings field, whose fields become options; None for other fields.

    A field of one fixed member of a family counts, a field of any member does not.
    """
    kind = field.annotation
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        return None
    return kind if not issubclass(kind, Spec) or "type" in kind.model_fields else None


def _is_member(field: FieldInfo) -> bool:
    """Whether the value of the field is a member of a family, or nothing."""
    return family_of(field) is not None or any(
        isinstance(extra, AnyOf)
        for kind in get_args(field.annotation)
        for extra in getattr(kind, "__metadata__", ())
    )


def _described(root: type[Spec], name: str, users: list[str]) -> str:
    """What a field means, for each member of the family that describes it differently."""
    meanings: dict[str, list[str]] = {}
    for user in users:
        description = (root.family[user].model_fields[name].description or "").rstrip(".")
        meanings.setdefault(description, []).append(user)
    if len(meanings) == 1 and len(users) == len(root.family) > 1:
        return f"{next(iter(meanings))}."
    return " ".join(
        f"{', '.join(names)}: {meaning}." for meaning, names in meanings.items() if meaning
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


def _pop_prefixed(options: dict[str, Any], prefix: str) -> dict[str, Any]:
    names = [name for name in options if name.startswith(prefix)]
    values = {name.removeprefix(prefix): options.pop(name) for name in names}
    return {name: parse_value(value) for name, value in values.items() if value is not None}


# Names of options that would clash with another option of the command.
_RENAMED = {
    ("operator", "mask"): "--mask-source",
    ("operator", "kernel"): "--kernel-weights",
    ("operator", "sigma"): "--blur-sigma",
    ("operator", "seed"): "--operator-seed",
}


def flag(name: str, field: str) -> str:
    """The option of the field ``name`` of the members of a family, for the task's ``field``."""
    return _RENAMED.get((field, name), _plain(name))
