"""One registry for everything selected by name: tasks, priors, operators, samplers, losses, style
measures.

A *family* is a :class:`Spec` subclass defined with ``family=True``. A further subclass whose
``type`` field has a literal default is registered under that name. A subclass without one is a
shared base class. OpenAPI, ``/v1/capabilities``, the studio's forms, the command line and the
property tests all read the registry, so adding a member takes one file.
"""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from aps_core.errors import InvalidSpec


class Config(BaseModel):
    """Frozen settings that refuse unknown fields, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def with_recommended(self, recommended: Mapping[str, Any]) -> Self:
        """Returns these settings with ``recommended`` in the fields that were not set
        explicitly.
        """
        return type(self)(**{**recommended, **self.model_dump(include=self.model_fields_set)})


class Spec(Config):
    """A frozen, JSON-serialisable description of one component of a computation."""

    family: ClassVar[dict[str, type[Spec]]]
    type: str

    def __init_subclass__(cls, *, family: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # pydantic passes ``family`` to the hook below

    @classmethod
    def __pydantic_init_subclass__(cls, *, family: bool = False, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if family:
            cls.family = {}
            return
        if cls.model_fields["type"].is_required():
            return  # a shared base class within the family
        name = cls.model_fields["type"].default
        known = cls.family.setdefault(name, cls)
        if known is not cls and (known.__module__, known.__qualname__) != (
            cls.__module__,
            cls.__qualname__,
        ):
            raise TypeError(
                f"'{name}' is registered twice: {known.__qualname__} and {cls.__qualname__}"
            )
        cls.family[name] = cls
        json_schema.cache_clear()

    @classmethod
    def named(cls, name: str) -> builtins.type[Self]:
        """Returns the member of this family registered as ``name``.

        Raises:
            InvalidSpec: no such member; the message lists the registered names.
        """
        found = cls.family.get(name)
        if found is None or not issubclass(found, cls):
            kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__.removesuffix("Spec")).lower()
            raise InvalidSpec(
                f"There is no {kind} {name!r}; known: {', '.join(sorted(cls.family))}."
            )
        return found

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """A member of this family from its fields, ``type`` among them.

        Raises:
            InvalidSpec: no such member, or a field is invalid; the message is one line.
        """
        member = cls.named(str(fields.get("type")))
        try:
            return member.model_validate(fields)
        except ValidationError as error:
            raise InvalidSpec(f"'{fields['type']}': {explain(error)}.") from error

    @classmethod
    def summary(cls) -> str:
        """First sentence of the docstring; shown in the API, the studio and the command line."""
        return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())


@cache
def json_schema(model: type[BaseModel]) -> JsonSchemaValue:
    """A model's JSON Schema, not to be changed. It lists families' members, so a registration
    makes all schemas anew.
    """
    return model.model_json_schema()


_described: ContextVar[frozenset[type[Spec]]] = ContextVar("described", default=frozenset())
"""Classes whose JSON Schema is being generated. Breaks the recursion of a class that contains its
own family.
"""


class AnyOf:
    """Pydantic annotation of a field that accepts any member of the family ``root``, also one that
    is registered later: ``Annotated[SamplerSpec, AnyOf(SamplerSpec)]``.

    Objects without a ``type`` use ``default``, if one is set. ``refusal`` says why a class is not
    accepted here; it is empty for the others, and the JSON Schema lists only those.
    """

    def __init__(
        self,
        root: type[Spec],
        default: str | None = None,
        refusal: Callable[[Any], str] = lambda _: "",
    ) -> None:
        self.root = root
        self.default = default
        self.refusal = refusal

    def _accepted(self) -> dict[str, type[Spec]]:
        return {name: cls for name, cls in self.root.family.items() if not self.refusal(cls)}

    def _check(self, cls: type[Spec]) -> None:
        if reason := self.refusal(cls):
            name = repr(cls.model_fields["type"].default)
            raise PydanticCustomError(
                "refused_type", "{name}: {reason}", {"name": name, "reason": reason}
            )

    def _validate(self, value: Any) -> Spec:
        if isinstance(value, self.root):
            self._check(type(value))
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("spec_type", "Input should be an object with a 'type'")
        name = value.get("type", self.default)
        chosen = self.root.family.get(name) if isinstance(name, str) else None
        if chosen is None:
            raise PydanticCustomError(
                "unknown_type",
                "Unknown type {name}; known: {known}",
                {"name": repr(name), "known": ", ".join(sorted(self._accepted()))},
            )
        self._check(chosen)  # before it is parsed: untrusted input could nest arbitrarily
        return chosen.model_validate(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda spec: spec.model_dump(mode="json")
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        choices = [self._reference(cls, handler) for _, cls in sorted(self._accepted().items())]
        described = {"oneOf": choices, "discriminator": {"propertyName": "type"}}
        return described if self.default is None else {**described, "x-default-type": self.default}

    def _reference(self, cls: type[Spec], handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A reference to the class's definition, which is recursive if it contains its family."""
        name = f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"
        reference = core_schema.definition_reference_schema(name)
        if cls in _described.get():
            return handler(reference)
        token = _described.set(_described.get() | {cls})
        try:
            return handler(
                core_schema.definitions_schema(
                    reference, [{**cls.__pydantic_core_schema__, "ref": name}]
                )
            )
        finally:
            _described.reset(token)


def discover(package: ModuleType, group: str | None = None) -> None:
    """Imports every module of ``package`` and every entry point of ``group``, which registers their
    classes.

    Modules of sub-packages are not imported: they contain networks, which need torch.
    """
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    for entry in entry_points(group=group) if group else ():
        entry.load()


def explain(error: ValidationError) -> str:
    """Describes the first invalid field: its path, what is expected, and the given value."""
    first, *others = relevant(error.errors())
    where = _path(first)
    alike = [first, *(other for other in others if _path(other) == where)]
    words = " or ".join(dict.fromkeys(map(plain, alike)))
    given = "" if first["type"] == "missing" else f" (given: {first['input']!r:.60})"
    return f"{where}: {words}{given}" if where else f"{words}{given}"


OF_TYPE = ("_type", "_parsing", "literal_error")
"""How the kinds of Pydantic's errors end that say that a value is of another type than expected."""


def relevant(errors: Sequence[Any]) -> list[Any]:
    """Pydantic's errors without those about the type of a value that has the type of another branch
    of a union, and about the number of valid items of a list whose other items have errors.
    """
    inside = {parts[:end] for parts in map(_parts, errors) for end in range(len(parts))}
    wrong = {_parts(error) for error in errors if not error["type"].endswith(OF_TYPE)}

    def counts(error: Any) -> bool:
        parts, kind = _parts(error), error["type"]
        if kind == "too_short":
            return parts not in inside
        return not kind.endswith(OF_TYPE) or (parts not in inside and parts not in wrong)

    return [error for error in errors if counts(error)]


def plain(error: Any) -> str:
    """Message of one of Pydantic's errors, in JSON's words rather than Python's."""
    if error["type"] in ("dict_type", "model_type", "model_attributes_type"):
        return "Input should be an object"
    message = str(error["msg"])
    if error["type"] in ("tuple_type", "too_short", "too_long"):
        message = message.replace("tuple", "list").replace("Tuple", "List")
    return message


def _path(error: Any) -> str:
    return ".".join(_parts(error))


def _parts(error: Any) -> tuple[str, ...]:
    """Field names and indices of a path; leaves out pydantic's labels of union branches."""
    return tuple(
        str(part) for part in error["loc"] if str(part).isidentifier() or isinstance(part, int)
    )
