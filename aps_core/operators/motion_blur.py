"""Motion blur along a random camera path."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from pydantic import Field

from aps_core._lazy import lazy_import
from aps_core.operators.base import Bound, OperatorSpec, Shape, Support
from aps_core.operators.blur import check_reach, reflecting_filter
from aps_core.operators.kernel_blur import KernelBlur, resampled_kernel

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")


class MotionBlur(OperatorSpec):
    """The camera moved along a random, partly curved path while the picture was taken."""

    type: Literal["motion_blur"] = "motion_blur"
    kernel_size: int = Field(
        61,
        ge=3,
        le=121,
        description=(
            "Side of the kernel in pixels of the upload; an even number is raised to the next odd"
            " one. The paper's 61 is for 512-pixel pictures; at 128 use 15."
        ),
    )
    intensity: float = Field(
        0.5, ge=0, le=1, description="0 is a nearly straight path, 1 a strongly curved one."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the random path.")
    linear: ClassVar[bool] = True
    lengths: ClassVar[tuple[str, ...]] = ("kernel_size",)

    def scaled(self, factor: float) -> OperatorSpec:
        """The resampled kernel: a path drawn at the smaller size would be another one."""
        kernel = motion_kernel(
            self.kernel_size | 1, self.intensity, np.random.default_rng(self.seed)
        )
        # this operator correlates with its kernel; a kernel blur convolves
        rows = resampled_kernel(kernel[::-1, ::-1].astype(float), factor).tolist()
        return KernelBlur.model_construct(kernel=tuple(tuple(row) for row in rows))

    @property
    def support(self) -> Support:
        """The kernel."""
        return Support((self.kernel_size | 1) // 2)

    def words(self) -> str:
        return f"a camera's movement over {self.kernel_size} pixels along a random path"

    def check_shape(self, shape_CHW: Shape) -> None:
        """The picture must be larger than the kernel's reach."""
        check_reach((self.kernel_size | 1) // 2, *shape_CHW[1:])

    def bind(
        self, shape_CHW: Shape, device: torch.device | str = "cpu", mask_HW: Tensor | None = None
    ) -> Bound:
        size = self.kernel_size | 1
        kernel = torch.from_numpy(
            motion_kernel(size, self.intensity, np.random.default_rng(self.seed))
        ).to(device)
        return Bound(reflecting_filter(kernel, *shape_CHW[1:]), drawn={"kernel": kernel})


def motion_kernel(
    size: int, intensity: float, rng: np.random.Generator
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """A (size, size) kernel of sum 1 with the statistics of the public motion-blur generator used
    by the paper.

    The path is drawn on a canvas of twice the size, which is then reduced. Step lengths are Beta(1,
    30) fractions of the diagonal, up to a random total. Directions are triangularly distributed up
    to the largest angle. They stay on one side of the axis, except with a probability drawn from
    Beta(2, 20).

    Args:
        size: side of the kernel in pixels, odd.
        intensity: curvature of the path in [0, 1].
        rng: source of the random path.
    """
    eps = 0.1
    diagonal = 2 * size * math.sqrt(2)
    total = 0.75 * diagonal * (rng.uniform() + rng.uniform(0, intensity**2))
    steps: list[float] = []
    while sum(steps) < total:
        step = rng.beta(1, 30) * (1 - intensity + eps) * diagonal
        if step < total:
            steps.append(step)
    largest = rng.uniform(0, intensity * math.pi)
    flip = rng.beta(2, 20)
    angle = rng.uniform(-largest, largest)
    path = [0j]
    for step in steps:
        path.append(path[-1] + step * complex(math.cos(angle), math.sin(angle)))
        sense = math.copysign(1, angle) * (-1 if rng.uniform() < flip else 1)
        angle = sense * rng.triangular(0, intensity * largest, largest + eps)
    points = np.array(path)
    points = (points - points.mean()) * np.exp(1j * rng.uniform(0, math.pi)) + complex(size, size)
    canvas = Image.new("L", (2 * size, 2 * size))
    ImageDraw.Draw(canvas).line(
        [(float(p.real), float(p.imag)) for p in points],
        fill=255,
        width=max(1, int(diagonal / 150)),
    )
    canvas = canvas.filter(ImageFilter.GaussianBlur(int(diagonal * 0.01))).resize(
        (size, size), Image.Resampling.LANCZOS
    )
    kernel = np.array(canvas, dtype=np.float32)
    kernel /= kernel.sum()
    return kernel
