"""What a user's mask says is known, and whether it leaves something to do and something to go by;
needs no torch.
"""

from __future__ import annotations

import numpy as np

from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.images import Picture
from aps_core.tasks.base import Inputs


def mask_source(inputs: Inputs) -> Picture | None:
    """The picture that says what is known: the mask, else an image with transparency."""
    if inputs.mask is not None:
        return inputs.mask
    return inputs.image if inputs.image is not None and inputs.image.has_alpha else None


def check_mask(source: Picture, *, may_be_whole: bool = False) -> None:
    """Checks that a mask covers neither everything nor, unless it ``may_be_whole``, nothing.

    Raises:
        InvalidSpec: it does.
    """
    known = np.asarray(images.mask_band(source)) >= 128
    if not known.any():
        raise InvalidSpec(
            "The mask covers the whole picture, so nothing is left to go by; white (opaque) marks"
            " what to keep. Or use the task 'generate'."
        )
    if known.all() and not may_be_whole:
        raise InvalidSpec("The mask covers nothing; black (transparent) marks what to draw anew.")
