"""Priors, one folder each, found by :func:`aps_core.registry.discover`."""

import sys
from collections.abc import Collection, Iterable

from aps_core.priors.base import Content, ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.registry import discover

discover(sys.modules[__name__], "aps.priors")


def specialised_in(
    content: Content, operators: Collection[str], offered: Iterable[str] | None = None
) -> str | None:
    """The first of the ``offered`` priors that is specialised in such pictures behind such
    operators; None if none is.

    Args:
        content: kind of pictures.
        operators: types of the operator, or of all stages of a composition; empty: not known.
        offered: names of priors; default: those whose weights are installed.

    Raises:
        InvalidSpec: no prior has one of these names.
    """
    if offered is None:
        offered = [name for name in PriorSpec.family if PriorSpec.named(name).missing() is None]
    for name in offered:
        spec = PriorSpec.named(name)
        if not issubclass(spec, ImagePriorSpec) or spec.content != content:
            continue
        if spec.operators is None or (operators and spec.operators.issuperset(operators)):
            return name
    return None


__all__ = ["ImagePriorSpec", "PriorSpec", "TextModels", "TextPriorSpec", "specialised_in"]
