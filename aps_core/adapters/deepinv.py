"""Adapts a deepinv physics object to a bound operator, without importing deepinv.

deepinv's pictures are in [0, 1] and its measurements in the physics' own scale. Pictures are
therefore rescaled before they are measured; the measurement and its noise are unchanged.
"""

from __future__ import annotations

from typing import Any

from aps_core.operators import Bound


def is_physics(operator: Any) -> bool:
    """Whether an object has the interface of ``deepinv.physics.Physics``: ``A`` and
    ``noise_model``.
    """
    return callable(getattr(operator, "A", None)) and hasattr(operator, "noise_model")


def bound(physics: Any) -> Bound:
    """``physics.A`` without its noise, for pictures (B, 3, H, W) in [-1, 1]."""
    return Bound(lambda x_BCHW: physics.A((x_BCHW + 1) / 2))


def sigma(physics: Any) -> float | None:
    """Standard deviation of the noise model in the measurement's scale; None unless it has a single
    one.
    """
    found = getattr(physics.noise_model, "sigma", None)
    if found is None or getattr(found, "numel", lambda: 1)() != 1:
        return None
    return float(found)


def image_size(physics: Any) -> tuple[int, int] | None:
    """Height and width of the pictures, if the physics has a fixed size."""
    found = getattr(physics, "img_size", None)
    return (int(found[-2]), int(found[-1])) if found is not None and len(found) >= 2 else None
