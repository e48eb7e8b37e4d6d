"""The known part of an upload, from its mask picture or alpha channel. Needs no torch."""

from __future__ import annotations

from aps_core.imaging.images import Picture
from aps_core.tasks.base import Inputs, Slot


def mask_slot(inputs: Inputs) -> Slot | None:
    """Picture that defines the known part: the mask, else an image with transparency."""
    if inputs.mask is not None:
        return "mask"
    return "image" if inputs.image is not None and inputs.image.has_alpha else None


def mask_source(inputs: Inputs) -> Picture | None:
    """The picture selected by :func:`mask_slot`."""
    slot = mask_slot(inputs)
    return None if slot is None else getattr(inputs, slot)
