"""The known part of an upload, from its mask picture or alpha channel. Needs no torch."""

from __future__ import annotations

from aps_core.errors import InvalidSpec
from aps_core.imaging.images import MaskCoverage, Picture
from aps_core.tasks.base import Inputs, Size, Slot


def mask_slot(inputs: Inputs) -> Slot | None:
    """Picture that defines the known part: the mask, else an image with transparency."""
    if inputs.mask is not None:
        return "mask"
    return "image" if inputs.image is not None and inputs.image.has_alpha else None


def mask_source(inputs: Inputs) -> Picture | None:
    """The picture selected by :func:`mask_slot`."""
    slot = mask_slot(inputs)
    return None if slot is None else getattr(inputs, slot)


def check_mask_size(mask: Size | None, image: Size) -> None:
    """Checks that a mask, if there is one, has the image's size.

    Raises:
        InvalidSpec: it has not.
    """
    if mask is not None and mask != image:
        raise InvalidSpec(
            f"The mask is {mask[0]}x{mask[1]} pixels, the image {image[0]}x{image[1]}; they"
            " must have the same size."
        ).at("mask")


def check_coverage(known: MaskCoverage, *, may_be_whole: bool = False) -> None:
    """Checks that some pixels are known and, unless ``may_be_whole``, that some are not.

    Raises:
        InvalidSpec: nothing is known, or everything is.
    """
    if known == "none":
        raise InvalidSpec(
            "The mask covers the whole picture, so no pixel is known; white (opaque) marks"
            " what to keep. Or use the task 'generate'."
        )
    if known == "all" and not may_be_whole:
        raise InvalidSpec("The mask covers nothing; black (transparent) marks what to regenerate.")
