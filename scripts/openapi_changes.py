"""Breaking changes between two OpenAPI documents: what a client of the old one meets in the new.

Optional additions are none, nor are further values and variants in answers, which clients have to
expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def http_changes(old: Json, new: Json) -> Iterator[str]:
    """One line for each change, such as ``POST /v1/x field: is now required``."""
    yield from Comparison(old, new).all()


@dataclass
class Comparison:
    """Two documents, and the pairs of schemas that have been compared."""

    old: Json
    new: Json
    seen: set[tuple[int, int, bool]] = field(default_factory=set)

    def all(self) -> Iterator[str]:
        """Of every operation."""
        for path, methods in self.old["paths"].items():
            for method, old in methods.items():
                name, new = f"{method.upper()} {path}", self.new["paths"].get(path, {}).get(method)
                if new is None:
                    yield f"{name}: was removed"
                    continue
                yield from self.parameters(name, old, new)
                yield from self.body(name, old.get("requestBody"), new.get("requestBody"))
                for status, answer in old["responses"].items():
                    if status.startswith("2"):
                        after = new["responses"].get(status)
                        yield from self.contents(f"{name} {status}", answer, after, sent=False)

    def parameters(self, name: str, old: Json, new: Json) -> Iterator[str]:
        """Of the path, the query and the headers."""
        before, after = (
            {(each["in"], each["name"]): each for each in operation.get("parameters", ())}
            for operation in (old, new)
        )
        for key, each in after.items():
            if each.get("required") and not before.get(key, {}).get("required"):
                yield f"{name} {key[1]}: is now required"
        for key, each in before.items():
            if key not in after:
                yield f"{name} {key[1]}: was removed"
            else:
                there = f"{name} {key[1]}"
                yield from self.schemas(there, each["schema"], after[key]["schema"], sent=True)

    def body(self, name: str, old: Json | None, new: Json | None) -> Iterator[str]:
        """What a request sends."""
        if new is not None and new.get("required") and not (old or {}).get("required"):
            yield f"{name} body: is now required"
        if old is not None:
            yield from self.contents(name, old, new, sent=True)

    def contents(self, name: str, old: Json, new: Json | None, sent: bool) -> Iterator[str]:
        """Every media type."""
        if new is None:
            yield f"{name}: was removed"
            return
        for kind, each in old.get("content", {}).items():
            after = new.get("content", {}).get(kind)
            if after is None:
                yield f"{name} {kind}: was removed"
            elif "schema" in each:
                yield from self.schemas(name, each["schema"], after.get("schema", {}), sent)

    def schemas(self, name: str, old: Json, new: Json, sent: bool) -> Iterator[str]:
        """A value that a client sends, or receives."""
        if "$ref" in old:
            name = old["$ref"].rpartition("/")[2]
        before, after = variants(self.old, old), variants(self.new, new)
        if sent:
            for kind in sorted(before.keys() - after.keys()) if "any" not in after else ():
                yield f"{name}: no longer takes {kind}"
        elif "any" not in before and not before.keys() & after.keys():
            yield f"{name}: is now {', '.join(sorted(after))}"
        for kind in sorted(before.keys() & after.keys()):
            yield from self.values(name, before[kind], after[kind], sent)

    def values(self, name: str, old: Json, new: Json, sent: bool) -> Iterator[str]:
        """One variant, once."""
        if (pair := (id(old), id(new), sent)) in self.seen:
            return
        self.seen.add(pair)
        needed = [set(schema.get("required", ())) for schema in (old, new)]
        before, after = old.get("properties", {}), new.get("properties", {})
        for each in sorted(before.keys() - after.keys()):
            yield f"{name}.{each}: was removed"
        if sent:
            for each in sorted(needed[1] - needed[0]):
                yield f"{name}.{each}: is now required"
            yield from narrowed(name, old, new)
        else:
            for each in sorted((needed[0] - needed[1]) & after.keys()):
                yield f"{name}.{each}: may now be missing"
        for each in sorted(before.keys() & after.keys()):
            yield from self.schemas(f"{name}.{each}", before[each], after[each], sent)
        if "items" in old and "items" in new:
            yield from self.schemas(f"{name}[]", old["items"], new["items"], sent)


def variants(document: Json, schema: Json) -> dict[str, Json]:
    """The alternatives of a schema by the value of their ``type`` field, or else their JSON type;
    ``any`` where nothing is said.
    """
    while "$ref" in schema:
        place: Any = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        schema = place
    found: dict[str, Json] = {}
    for each in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        found |= variants(document, each)
    if not found:
        tag = schema.get("properties", {}).get("type", {}).get("const")
        found[tag or schema.get("type", "any")] = schema
    return found


def choices(schema: Json) -> set[str]:
    """The only values that are taken; empty if there are others."""
    single = [schema["const"]] if "const" in schema else []
    return {str(value) for value in [*schema.get("enum", ()), *single]}


def narrowed(name: str, old: Json, new: Json) -> Iterator[str]:
    """Values that are no longer taken."""
    before, after = choices(old), choices(new)
    if after and not before:
        yield f"{name}: takes only {', '.join(sorted(after))}"
    elif after and before - after:
        yield f"{name}: no longer takes {', '.join(sorted(before - after))}"
    for bound in LOWER:
        if bound in new and new[bound] > old.get(bound, float("-inf")):
            yield f"{name}: {bound} is now {new[bound]}"
    for bound in UPPER:
        if bound in new and new[bound] < old.get(bound, float("inf")):
            yield f"{name}: {bound} is now {new[bound]}"
