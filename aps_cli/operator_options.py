"""Options of a degradation: ``--operator`` and one per field, and words for what it is."""

from __future__ import annotations

import json
from typing import Any

from pydantic.fields import FieldInfo

from aps_cli.fields import Command, family_options, flag, member_from
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.operators import OperatorSpec
from aps_core.registry import AnyOf

OPERATOR = AnyOf(OperatorSpec)


def operator_from(options: dict[str, Any]) -> dict[str, Any]:
    """Removes the operator's options from ``options`` and returns the JSON of its spec.

    Raises:
        InvalidSpec: an option does not apply to the selected operator.
    """
    return member_from("operator", OPERATOR, options) or {}


def operator_options(command: Command) -> Command:
    """Adds ``--operator`` and one option per operator field, for operators that degrade."""
    info = FieldInfo(description="The degradation")
    known = [
        name for name, cls in OperatorSpec.family.items() if not issubclass(cls, UnknownOperator)
    ]
    return family_options("operator", OPERATOR, info, known)(command)


def field_lines(operator: str) -> list[str]:
    """Describes the options of an operator, one per line."""
    lines = []
    for name, field in OperatorSpec.named(operator).model_fields.items():
        if name != "type":
            default = "" if field.is_required() else f" [default: {field.default}]"
            lines.append(f"{flag(name, 'operator'):<16} {field.description}{default}")
    return lines


def words_of(operator: dict[str, Any]) -> list[str]:
    """Command-line words that select an operator; the inverse of :func:`operator_from`."""
    given = {flag(name, "operator"): value for name, value in operator.items() if name != "type"}
    texts = {word: v if isinstance(v, str) else json.dumps(v) for word, v in given.items()}
    return ["--operator", operator["type"], *(word for pair in texts.items() for word in pair)]
