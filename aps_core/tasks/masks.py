"""What a user's mask says is known, and whether it leaves something to do and something to go by;
needs no torch.
"""

from __future__ import annotations

from aps_core.errors import InvalidSpec
from aps_core.imaging.images import Coverage, Picture
from aps_core.tasks.base import Inputs, Slot


def mask_slot(inputs: Inputs) -> Slot | None:
    """Which picture says what is known: the mask, else an image with transparency."""
    if inputs.mask is not None:
        return "mask"
    return "image" if inputs.image is not None and inputs.image.has_alpha else None


def mask_source(inputs: Inputs) -> Picture | None:
    """The picture of :func:`mask_slot`."""
    slot = mask_slot(inputs)
    return None if slot is None else getattr(inputs, slot)


def check_coverage(known: Coverage, *, may_be_whole: bool = False) -> None:
    """Checks that a mask covers neither everything nor, unless it ``may_be_whole``, nothing.

    Raises:
        InvalidSpec: it does.
    """
    if known == "none":
        raise InvalidSpec(
            "The mask covers the whole picture, so nothing is left to go by; white (opaque) marks"
            " what to keep. Or use the task 'generate'."
        )
    if known == "all" and not may_be_whole:
        raise InvalidSpec("The mask covers nothing; black (transparent) marks what to draw anew.")
