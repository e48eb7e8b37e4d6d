"""Predicts time and memory of a job, and checks that priors and jobs fit a device. Needs no
torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aps_core.errors import ImageTooLarge, InsufficientMemory, InvalidSpec, JobTooLong
from aps_core.priors import PriorSpec
from aps_core.runtime.durations import in_words
from aps_core.tasks.base import TaskSpec
from aps_core.tasks.restore import RestoreSpec
from aps_core.types import Size

CPU_MAX_PIXELS = 512 * 512
GPU_MAX_PIXELS = 2048 * 2048
"""Default limits on the area of the restored picture."""


RESERVED_BYTES = {"cpu": 500_000_000, "cuda": 1_500_000_000}
"""Memory used by libraries, kernels and workspaces on a device, besides weights and jobs."""


@dataclass(frozen=True)
class Capacity:
    """Memory available to jobs of one prior on one device."""

    job_bytes: int
    """Memory left after loading all weights of the worker."""
    token_bytes: int
    """Memory of a job per token."""

    def check(self, tokens: int) -> None:
        """Rejects a job that cannot fit, before it is queued.

        Raises:
            InsufficientMemory: the job needs more than ``job_bytes``.
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
    """Predicted output size and cost of a job."""

    output: Size | None
    """Width and height of the result; None for text."""
    sampled: Size | None
    """Width and height of the sampled part; see :meth:`TaskSpec.sampled_size`."""
    tokens: int
    seconds: float
    tokens_at_once: int
    """Tokens in the device's memory at a time: all, or those of a tile."""


def estimate(spec: TaskSpec, image: Size | None, seconds_per_token: float) -> Estimate:
    """Predicts a job's output size, tokens and seconds.

    Args:
        spec: the task.
        image: width and height of the upload in pixels; None without an upload.
        seconds_per_token: result of ``Engine.seconds_per_token`` on the device.
    """
    tokens, passes = spec.work(image)
    return Estimate(
        output=spec.output_size(image),
        sampled=spec.sampled_size(image),
        tokens=tokens,
        seconds=tokens * passes * seconds_per_token,
        tokens_at_once=spec.tokens_at_once(image),
    )


def check_size(
    spec: TaskSpec,
    image: Size | None,
    max_pixels: int,
    seconds_per_token: float,
    capacity: Capacity | None = None,
    max_seconds: float = math.inf,
) -> Estimate:
    """Returns the estimate if the result fits the device's limit and, if known, its memory. Tiles
    that take longer than ``max_seconds`` are not proposed.

    Raises:
        ImageTooLarge: the picture is too large; the message contains the estimate and a size that
            fits.
        InsufficientMemory: the job does not fit the device's memory.
    """
    cost = estimate(spec, image, seconds_per_token)
    if cost.sampled is not None and math.prod(cost.sampled) > max_pixels:
        way = _in_tiles(spec, image, max_pixels, seconds_per_token, max_seconds)
        raise _too_large(cost.sampled, cost, max_pixels, fitting_side(spec, image, max_pixels), way)
    if capacity is not None:
        capacity.check(cost.tokens_at_once)
    return cost


def fitting_side(spec: TaskSpec, image: Size | None, max_pixels: int) -> int | None:
    """The largest 'working_size' with which the result has at most ``max_pixels``; None if the task
    has no such field, or none is small enough.
    """
    if "working_size" not in type(spec).model_fields:
        return None

    def exceeds(side: int) -> bool:
        sampled = spec.model_copy(update={"working_size": side}).sampled_size(image)
        return sampled is not None and math.prod(sampled) > max_pixels

    fitting = bisect_left(WORKING_SIZES, True, key=exceeds)
    return WORKING_SIZES[fitting - 1] if fitting else None


def check_seconds(
    spec: TaskSpec,
    image: Size | None,
    cost: Estimate,
    max_seconds: float,
    seconds_per_token: float,
) -> None:
    """Rejects a job that is predicted to take longer than ``max_seconds``.

    Raises:
        JobTooLong: the message contains the estimate and settings that would fit.
    """
    if cost.seconds <= max_seconds:
        return

    def fits(changed: TaskSpec) -> bool:
        return estimate(changed, image, seconds_per_token).seconds <= max_seconds

    ways = list(_smaller(spec, cost.output, fits))
    raise JobTooLong(
        f"The job would take about {in_words(cost.seconds)}; at most {in_words(max_seconds)} are"
        " allowed." + (f" One of these would fit: {', '.join(ways)}." if ways else "")
    )


WORKING_SIZES = range(32, 4097)
"""Values that a task's 'working_size' can have."""
_FIELDS = (
    ("sampler", "steps", 1),
    ("sampler", "inner_steps", 1),
    ("", "num_samples", 1),
    ("", "working_size", WORKING_SIZES.start),
)
"""Settings that shorten a job, their location in the spec, and the smallest suggested value."""


def _smaller(
    spec: TaskSpec, output: Size | None, fits: Callable[[TaskSpec], bool]
) -> Iterator[str]:
    """For each setting, the largest value with which the job fits."""
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
    """Memory available to jobs of several priors loaded together on one device. Jobs run one at a
    time.

    Raises:
        WeightsMissing, WeightsInvalid: a prior's weights are absent or damaged.
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


def _in_tiles(
    spec: TaskSpec,
    image: Size | None,
    max_pixels: int,
    seconds_per_token: float,
    max_seconds: float,
) -> str:
    """How to compute the job in tiles, with the time it takes; empty if that is impossible."""
    if not isinstance(spec, RestoreSpec):
        return ""
    # larger tiles overlap less, smaller ones need less memory
    side = min(2 * max(spec.prior_spec().native_size), math.isqrt(max_pixels))
    tiled = spec.model_copy(update={"tile": side})
    try:
        tiling, seconds = (
            tiled.layout(image).tiling,
            estimate(tiled, image, seconds_per_token).seconds,
        )
    except (InvalidSpec, ImageTooLarge):
        return ""
    if seconds > max_seconds:
        return ""
    assert tiling is not None  # a picture that fits one tile is not too large
    return (
        f" Or set 'tile' to {side} to restore it at full size in {len(tiling.tiles)} tiles, in"
        f" about {in_words(seconds)}."
    )


def _too_large(
    size: Size, cost: Estimate, max_pixels: int, side: int | None, way: str
) -> ImageTooLarge:
    width, height = size
    smaller = f" or set 'working_size' to {side} or less" if side else ""
    return ImageTooLarge(
        f"The picture to be made would be {width}x{height} pixels ({cost.tokens} tokens, about"
        f" {in_words(cost.seconds)} here); this device allows {max_pixels} pixels at a time. Send a"
        f" smaller picture{smaller}.{way}"
    )
