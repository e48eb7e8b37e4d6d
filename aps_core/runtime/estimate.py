"""What a job will cost, before it runs, and whether priors and jobs fit a device. Needs no
torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aps_core.errors import ImageTooLarge, InsufficientMemory
from aps_core.priors import PriorSpec
from aps_core.tasks.base import Size, TaskSpec

CPU_MAX_PIXELS = 512 * 512
GPU_MAX_PIXELS = 2048 * 2048
"""Default limits on the restored picture's area."""


RESERVED_BYTES = {"cpu": 500_000_000, "cuda": 1_500_000_000}
"""What libraries, kernels and workspaces take on a device besides weights and jobs."""


@dataclass(frozen=True)
class Capacity:
    """What one prior on one device leaves to a job."""

    job_bytes: int
    """Memory left when all weights of the worker are loaded."""
    token_bytes: int
    """Memory a job takes for every token."""

    def check(self, tokens: int) -> None:
        """Refuses a job that cannot fit, before it is queued.

        Raises:
            InsufficientMemory: it takes more than there is.
        """
        needed = tokens * self.token_bytes
        if needed > self.job_bytes:
            raise InsufficientMemory(
                f"The job's {tokens} tokens take about {_gigabytes(needed)}, but the device has"
                f" {_gigabytes(self.job_bytes)} beside the weights: at most"
                f" {self.job_bytes // self.token_bytes} tokens. Send a smaller picture, set"
                " 'working_size', or ask for fewer samples."
            )


@dataclass(frozen=True)
class Estimate:
    """Predicted output and cost of a job."""

    output: Size | None
    """Size of the picture; None for text."""
    sampled: Size | None
    """Of it, what is sampled; see :meth:`TaskSpec.sampled_size`."""
    tokens: int
    seconds: float


def estimate(spec: TaskSpec, image: Size | None, seconds_per_token: float) -> Estimate:
    """``seconds_per_token``: what ``Engine.seconds_per_token`` measured on the device; ``image``:
    size of the upload, if the task takes one.
    """
    tokens, passes = spec.work(image)
    return Estimate(
        spec.output_size(image),
        spec.sampled_size(image),
        tokens,
        tokens * passes * seconds_per_token,
    )


def check_size(
    spec: TaskSpec,
    image: Size | None,
    max_pixels: int,
    seconds_per_token: float,
    capacity: Capacity | None = None,
) -> Estimate:
    """The estimate, if the result fits the device's limit and, where known, its memory.

    Raises:
        ImageTooLarge: the picture is too large; the message holds the estimate and what to do.
        InsufficientMemory: the job does not fit the device's memory.
    """
    cost = estimate(spec, image, seconds_per_token)
    _check_area(cost, max_pixels)
    if capacity is not None:
        capacity.check(cost.tokens)
    return cost


def fit(priors: Sequence[PriorSpec], device: str, total_bytes: int) -> dict[str, Capacity]:
    """What each of several priors, loaded together on one device, leaves to a job; jobs run one at
    a time.

    Raises:
        WeightsMissing, WeightsInvalid: a prior's weights are not here.
        InsufficientMemory: the weights and the largest prior's native job exceed ``total_bytes``;
            the message lists both.
    """
    weights = {prior.type: prior.weights_bytes(device) for prior in priors}
    jobs = {prior.type: prior.token_bytes(device) * prior.native_tokens for prior in priors}
    left = total_bytes - sum(weights.values()) - RESERVED_BYTES[device]
    if left < max(jobs.values()):
        parts = ", ".join(
            f"{name} {_gigabytes(size)} and {_gigabytes(jobs[name])} a job"
            for name, size in weights.items()
        )
        needed = sum(weights.values()) + RESERVED_BYTES[device] + max(jobs.values())
        raise InsufficientMemory(
            f"The priors need about {_gigabytes(needed)} ({parts},"
            f" {_gigabytes(RESERVED_BYTES[device])} for libraries), but the device has"
            f" {_gigabytes(total_bytes)}. Load fewer priors in one worker (APS_PRIORS) or use a"
            " larger device."
        )
    return {prior.type: Capacity(left, prior.token_bytes(device)) for prior in priors}


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _check_area(cost: Estimate, max_pixels: int) -> None:
    if cost.sampled is None:
        return
    width, height = cost.sampled
    if width * height > max_pixels:
        side = int((max_pixels * max(width, height) / min(width, height)) ** 0.5)
        raise ImageTooLarge(
            f"The picture to be made would be {width}x{height} pixels ({cost.tokens} tokens, about"
            f" {cost.seconds:.0f} s here); this device allows {max_pixels} pixels. Send a smaller"
            f" picture or set 'working_size' to {side} or less."
        )
