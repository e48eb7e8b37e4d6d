"""The prior of a restoration that names none, by what its picture shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aps_core.priors import specialised_in
from aps_core.priors.base import Content

KEEPS_DEFAULT = ("prompt", "sampler")
"""Fields that, if given, leave the default prior: specialised ones do not read the first and may
not suit the second."""


def leaves_prior_open(
    task: str, spec: Mapping[str, Any], offered: Iterable[str] | None = None
) -> bool:
    """Whether the prior of a job depends on what its picture shows: a restoration that names none,
    where at least one specialised prior is offered. With any of :data:`KEEPS_DEFAULT`, the prior is
    the default.

    Args:
        task: type of the job.
        spec: its spec as JSON, as the caller wrote it.
        offered: names of priors; default: those whose weights are installed.
    """
    given = any(spec.get(name, "") != "" for name in KEEPS_DEFAULT)
    if task != "restore" or "prior" in spec or given:
        return False
    return any(specialised(document, spec, offered) for document in (False, True))


def specialised(
    document: bool, spec: Mapping[str, Any], offered: Iterable[str] | None = None
) -> str | None:
    """The prior for a page or screen, or for a photograph, behind the operator of a restoration's
    ``spec`` in JSON; None if none of the ``offered`` is specialised in it.
    """
    content: Content = "documents" if document else "photographs"
    return specialised_in(content, _operators(spec.get("operator")), offered)


def _operators(operator: Any) -> set[str]:
    """Types of an operator in JSON, not yet validated, or of its stages; empty if it has none."""
    if not isinstance(operator, Mapping):
        return set()
    stages = operator.get("stages") if operator.get("type") == "compose" else [operator]
    each = stages if isinstance(stages, list) else []
    return {str(stage.get("type")) for stage in each if isinstance(stage, Mapping)}


def with_priors(spec: Mapping[str, Any], offered: Sequence[str]) -> list[dict[str, Any]]:
    """The spec of a restoration that leaves its prior open, with every prior that it may get: that
    for photographs, the default, and that for documents.
    """
    photographs, documents = (specialised(document, spec, offered) for document in (False, True))
    given = [{"prior": photographs}, {}, {"prior": documents}]
    return [{**spec, **each} for each in given if each.get("prior", "") is not None]
