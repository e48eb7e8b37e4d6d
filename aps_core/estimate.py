"""What a job will cost, before it runs. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from aps_core.errors import ImageTooLarge
from aps_core.tasks.base import Size, TaskSpec

CPU_MAX_PIXELS = 512 * 512
GPU_MAX_PIXELS = 2048 * 2048
"""Default limits on the restored picture's area."""


@dataclass(frozen=True)
class Estimate:
    """Predicted output and cost of a job."""

    output: Size | None
    """Size of the picture; None for text."""
    tokens: int
    seconds: float


def estimate(spec: TaskSpec, image: Size | None, seconds_per_token: float) -> Estimate:
    """``seconds_per_token``: what ``Engine.seconds_per_token`` measured on the device; ``image``: size of the upload, if the task takes one."""
    tokens, passes = spec.work(image)
    return Estimate(spec.output_size(image), tokens, tokens * passes * seconds_per_token)


def check_size(spec: TaskSpec, image: Size | None, max_pixels: int, seconds_per_token: float) -> Estimate:
    """The estimate, if the restored picture fits the device's limit.

    Raises:
        ImageTooLarge: it does not; the message holds the estimate and what to do.
    """
    cost = estimate(spec, image, seconds_per_token)
    if cost.output is None:
        return cost
    width, height = cost.output
    if width * height > max_pixels:
        side = int((max_pixels * max(width, height) / min(width, height)) ** 0.5)
        raise ImageTooLarge(
            f"The restored picture would be {width}x{height} pixels ({cost.tokens} tokens, about {cost.seconds:.0f} s here); "
            f"this device allows {max_pixels} pixels. Send a smaller picture or set 'working_size' to {side} or less."
        )
    return cost
