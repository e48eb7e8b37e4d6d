"""Errors name what was typed: options and files, in place of the fields of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from aps_core.errors import APSError
from aps_core.registry import explain

_FIELDS = re.compile(r"; (?=/\w[\w/]*: )")
"""Between the invalid fields that a service lists."""
_FIELD = re.compile(r"/?(?P<path>\w+(?:[./]\w+)*): (?P<words>.*)", re.DOTALL)
"""An invalid field: its path, from here or as a JSON pointer, and what is expected."""
_FILE = re.compile(r"'(?P<name>\w+)': (?P<words>.*)", re.DOTALL)
"""A refused picture."""
_GIVEN = re.compile(r" \(given: .*\)$", re.DOTALL)
"""The value, which can be seen in what was typed."""
_MENTION = re.compile(
    r"(?:the (?P<holder>\w+)'s )?'(?P<quoted>[a-z]\w*(?:\.\w+)*)'"
    r"|(?<![\w'./-])(?P<bare>[a-z]+(?:[._][a-z]+)+)(?![\w'/])"
)
"""A field within a sentence."""
_KEY = re.compile(r"'Authorization: Bearer [^']*'")
_INVALID = "Invalid value for "


class NamingCommand(click.Command):
    """A command whose errors name its options."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; errors of fields become errors of usage, as click's own are."""
        try:
            return super().invoke(ctx)
        except ValidationError as error:
            raise click.UsageError(in_options(explain(error), ctx), ctx) from error
        except APSError as error:
            told = in_options(str(error), ctx)
            if told.startswith(_INVALID):
                raise click.UsageError(told, ctx) from error
            error.args = (told,)
            raise


def in_options(message: str, ctx: click.Context) -> str:
    """The message of an error with the options and files of the command that was called, in place
    of the fields of a job.
    """
    names = {
        (param.name or "").replace("__", "."): param.opts[-1]
        if isinstance(param, click.Option)
        else param.make_metavar(ctx)
        for param in ctx.command.params
    }
    told = _GIVEN.sub("", message.removeprefix("Value error, "))
    return "; ".join(_part(part, names, ctx) for part in _FIELDS.split(told))


def _part(message: str, names: Mapping[str, str], ctx: click.Context) -> str:
    if (file := _FILE.match(message)) and (given := ctx.params.get(file["name"])):
        return f"{_file(given)}{file['words']}"
    if field := _FIELD.match(message):
        path = field["path"].replace("/", ".")
        option, rest = _option(path, names)
        if option:
            return f"{_INVALID}'{option}': {rest}{field['words']}"
    if "api_key" in names:
        message = _KEY.sub(f"{names['api_key']} or APS_API_KEY", message)

    def named(found: re.Match[str]) -> str:
        path = found["quoted"] or found["bare"]
        whole = f"{found['holder']}.{path}" if found["holder"] else path
        option = names.get(whole) or _of_member(path, names)
        return option if option and option.startswith("-") else found[0]

    return _MENTION.sub(named, message)


def _option(path: str, names: Mapping[str, str]) -> tuple[str, str]:
    """The option of a field, and what the path has beyond it, as the start of a message."""
    outer, _, inner = path.rpartition(".")
    if option := names.get(path) or _of_member(path, names):
        return option, ""
    if not outer:
        return "", ""
    option, rest = _option(outer, names)
    where = ".".join(part for part in (rest.removesuffix(": "), inner) if part)
    return option, rest if inner == "type" else f"{where}: "


def _of_member(name: str, names: Mapping[str, str]) -> str:
    """The option of the only member's field of that name."""
    found = {option for path, option in names.items() if path.endswith(f".{name}")}
    return found.pop() if len(found) == 1 else ""


def _file(given: Any) -> str:
    """A file as the start of a message; empty if there are several, which are named elsewhere."""
    if isinstance(given, Path):
        return f"{given}: "
    paths = [path for each in given for path in each]
    return f"{paths[0]}: " if len(paths) == 1 else ""
