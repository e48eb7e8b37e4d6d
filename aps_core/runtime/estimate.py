"""What a job will cost, before it runs, and whether priors and jobs fit a device. Needs no
torch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aps_core.errors import ImageTooLarge, InsufficientMemory, JobTooLong
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


def check_seconds(
    spec: TaskSpec,
    image: Size | None,
    cost: Estimate,
    max_seconds: float,
    seconds_per_token: float,
) -> None:
    """Refuses a job that is predicted to take longer than ``max_seconds``.

    Raises:
        JobTooLong: the message holds the estimate and what would fit.
    """
    if cost.seconds <= max_seconds:
        return

    def fits(changed: TaskSpec) -> bool:
        return estimate(changed, image, seconds_per_token).seconds <= max_seconds

    ways = list(_smaller(spec, cost.output, fits))
    raise JobTooLong(
        f"The job would take about {cost.seconds:.0f} s; at most {max_seconds:.0f} s are allowed."
        + (f" One of these would fit: {', '.join(ways)}." if ways else "")
    )


_FIELDS = (
    ("sampler", "steps", 1),
    ("sampler", "inner_steps", 1),
    ("", "num_samples", 1),
    ("", "working_size", 32),
)
"""Settings that make a job shorter, where they are kept, and the least that is suggested."""


def _smaller(
    spec: TaskSpec, output: Size | None, fits: Callable[[TaskSpec], bool]
) -> Iterator[str]:
    """The largest value of each setting that by itself makes the job fit."""
    resolved = spec.resolved()
    for part, name, least in _FIELDS:
        holder = getattr(resolved, part) if part else resolved
        if not hasattr(holder, name):
            continue
        now = getattr(holder, name) or (max(output) if output else 0)

        def changed(value: int, part: str = part, name: str = name, holder: Any = holder) -> Any:
            new = holder.model_copy(update={name: value})
            return resolved.model_copy(update={part: new}) if part else new

        options = range(least, now)
        best = bisect_left(options, True, key=lambda value: not fits(changed(value)))
        if best:
            yield f"{part + '.' if part else ''}{name} {options[best - 1]}"


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
