"""Priors, one folder each, found by :func:`aps_core.registry.discover`."""

import sys
from collections.abc import Iterable

from aps_core.priors.base import Content, ImagePriorSpec, PriorSpec, TextModels, TextPriorSpec
from aps_core.registry import discover

discover(sys.modules[__name__], "aps.priors")


def specialised_in(content: Content, offered: Iterable[str] | None = None) -> str | None:
    """The first of the ``offered`` priors that is specialised in such pictures; None if none is.

    Args:
        content: kind of pictures.
        offered: names of priors; default: those whose weights are installed.

    Raises:
        InvalidSpec: no prior has one of these names.
    """
    if offered is None:
        offered = [name for name in PriorSpec.family if PriorSpec.named(name).missing() is None]
    for name in offered:
        spec = PriorSpec.named(name)
        if issubclass(spec, ImagePriorSpec) and spec.content == content:
            return name
    return None


__all__ = ["ImagePriorSpec", "PriorSpec", "TextModels", "TextPriorSpec", "specialised_in"]
