"""Rejects unknown query parameters: silently ignoring a filter would return the wrong result."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.api.problems.errors import UnknownParameter


async def known_parameters(request: Request) -> None:
    """Dependency of every route under ``/v1``.

    Raises:
        UnknownParameter: the path does not have one of the request's query parameters.
    """
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = set(_names(route.dependant))
    for name in request.query_params:
        if name not in known:
            has = f"; it has {', '.join(sorted(known))}" if known else ""
            raise UnknownParameter(f"{route.path} has no query parameter {name[:80]!r}{has}.")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
