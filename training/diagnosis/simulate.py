"""Simulated degradations of sharp pictures, as by cameras, scanners and web sites.

Pictures are luminance (H, W) or colour (H, W, 3), float64 in [-1, 1].
"""

from __future__ import annotations

import io
import math
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from aps_core.identify.diagnosis.blur import FAMILIES, Family
from aps_core.imaging.filters import gaussian
from aps_core.operators.defocus_blur import disc_kernel
from aps_core.operators.linear_motion_blur import line_kernel

Array = NDArray[np.float64]
RANGES: dict[Family, tuple[float, float]] = {
    "sharp": (0.05, 0.5),
    "gaussian": (0.7, 6.0),
    "defocus": (1.5, 12.0),
    "motion": (3.0, 30.0),
    "enlarged": (1.5, 8.0),
    "shaken": (5.0, 30.0),
}
"""Ranges of the sizes: standard deviation, radius or length in pixels, factor of enlargement, or
longer side of a trace. A Gaussian of half a pixel still counts as sharp.
"""
MEMORY = (0.95, 0.995)
"""Autocorrelation of a shaken camera's velocity per step: from trembling to one slow curve."""
LINE = 0.12
"""Ratio of the standard deviations across and along a trace below which it is a straight line."""
PASSES, PASSED = (2, 3, 3, 3, 5), 0.35
"""Numbers of box filters that approximate a Gaussian in browsers and drawing programs (three in
Pillow, SVG and CSS), and the share of Gaussians made this way. Their spectrum has zeros.
"""
EXPOSURE, EXPOSED = (0.35, 2.5), 0.35
"""Exposures of badly exposed pictures, and their share. More than 1 clips at white; such
photographs must not be mistaken for documents.
"""
FILTERS = (Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.LANCZOS)


@dataclass(frozen=True)
class Truth:
    """Degradation of one picture."""

    family: Family
    size: float
    angle: float
    noise: float
    """Standard deviation on the [-1, 1] scale."""
    quality: int
    """JPEG quality; 0 is none."""
    document: bool
    exposure: float = 1.0
    """Factor of the light before the noise."""
    passes: int = 0
    """Number of box filters that approximate a Gaussian; 0 for an exact one."""

    def row(self) -> dict[str, float | str | bool]:
        return asdict(self)


def drawn(rng: np.random.Generator, document: bool) -> Truth:
    """A random degradation."""
    family = FAMILIES[rng.integers(len(FAMILIES))]
    low, high = RANGES[family]
    size = float(low * (high / low) ** rng.random())
    if family == "enlarged" and rng.random() < 0.6:
        size = float(rng.choice([2, 3, 4]))
    noise = 0.0 if rng.random() < 0.3 else float(0.004 * 25 ** rng.random())
    quality = int(rng.integers(30, 96)) if rng.random() < 0.3 else 0
    passes = int(rng.choice(PASSES)) if family == "gaussian" and rng.random() < PASSED else 0
    darkest, brightest = EXPOSURE
    light = darkest * (brightest / darkest) ** rng.random() if rng.random() < EXPOSED else 1.0
    return Truth(
        family=family,
        size=size,
        angle=float(rng.uniform(0, 180)),
        noise=noise,
        quality=quality,
        document=document,
        exposure=float(light),
        passes=passes,
    )


def degraded(x: Array, truth: Truth, rng: np.random.Generator) -> Array:
    """Degraded picture, rounded to 8 bits. Enlarging keeps its size: it is reduced first."""
    y = x
    match truth.family:
        case "gaussian" if truth.passes:
            y = filtered(x, boxes_kernel(truth.size, truth.passes))
        case "gaussian" | "sharp":
            y = filtered(x, gaussian_kernel(truth.size))
        case "defocus":
            y = filtered(x, disc_kernel(truth.size))
        case "motion":
            y = filtered(x, line_kernel(truth.size, truth.angle))
        case "shaken":
            y = filtered(x, trace_kernel(truth.size, rng))
        case "enlarged":
            height, width = x.shape[:2]
            small = resized(
                x, (round(height / truth.size), round(width / truth.size)), Image.Resampling.BICUBIC
            )
            # cameras and programs add the noise before they enlarge
            small = eight_bit(
                exposed(small, truth.exposure) + truth.noise * rng.standard_normal(small.shape)
            )
            y = resized(small, (height, width), FILTERS[rng.integers(len(FILTERS))])
    if truth.family != "enlarged":
        y = exposed(y, truth.exposure) + truth.noise * rng.standard_normal(y.shape)
    y = eight_bit(y)
    return compressed(y, truth.quality) if truth.quality else y


def exposed(x: Array, light: float) -> Array:
    """Picture with its light multiplied by ``light``; black stays black."""
    return light * (x + 1) - 1


def gaussian_kernel(sigma: float) -> Array:
    """Square kernel truncated at four sigma, sum 1."""
    line = gaussian(sigma, int(4 * sigma + 0.5), torch.float64).numpy()
    kernel: Array = np.outer(line, line)
    return kernel


def boxes_kernel(sigma: float, passes: int) -> Array:
    """Square kernel with sum 1 of several box filters whose variances add up to a Gaussian's; each
    box has fractional weights at its ends.
    """
    # a box of 2 r + 1 pixels and two ends of weight e has the variance
    # (r (r + 1) (2 r + 1) + 6 e (r + 1)^2) / (6 r + 3 + 6 e)
    variance = sigma**2 / passes
    reach = int((math.sqrt(12 * variance + 1) - 1) / 2)
    inner, outer = reach * (reach + 1) * (2 * reach + 1), 6 * (reach + 1) ** 2
    end = (variance * (6 * reach + 3) - inner) / (outer - 6 * variance)
    box = np.array([end, *[1.0] * (2 * reach + 1), end]) / (2 * reach + 1 + 2 * end)
    line = np.ones(1)
    for _ in range(passes):
        line = np.convolve(line, box)
    kernel: Array = np.outer(line, line)
    return kernel


def trace_kernel(size: float, rng: np.random.Generator) -> Array:
    """Square kernel with sum 1 of a random smooth curve, ``size`` pixels along its longer side."""
    while True:
        memory = 1 - (1 - MEMORY[0]) * ((1 - MEMORY[1]) / (1 - MEMORY[0])) ** rng.random()
        velocity = rng.normal(size=2)
        steps = np.empty((400, 2))
        for step in steps:
            velocity = memory * velocity + math.sqrt(1 - memory**2) * rng.normal(size=2)
            step[:] = velocity
        places = steps.cumsum(0)
        narrow, wide = np.linalg.eigvalsh(np.cov(places.T))
        if narrow > LINE**2 * wide:
            break
    low, high = places.min(0), places.max(0)
    places = (places - (low + high) / 2) * size / (high - low).max()
    fine = np.concatenate([np.linspace(a, b, 20) for a, b in pairwise(places)])
    reach = math.ceil(size / 2)
    edges = np.arange(2 * reach + 2) - reach - 0.5
    counts = np.histogram2d(fine[:, 0], fine[:, 1], bins=(edges, edges))[0]
    kernel: Array = counts / counts.sum()
    return kernel


def filtered(x: Array, kernel: Array) -> Array:
    """Convolution with reflecting borders."""
    reach = len(kernel) // 2
    padding = [(reach, reach)] * 2 + [(0, 0)] * (x.ndim - 2)
    padded = np.pad(x, padding, mode="reflect" if reach < min(x.shape[:2]) else "symmetric")
    size = padded.shape[:2]
    transfer = np.fft.rfft2(kernel, size)
    spread = np.fft.irfft2(
        np.fft.rfft2(padded, axes=(0, 1)) * (transfer[..., None] if x.ndim == 3 else transfer),
        size,
        axes=(0, 1),
    )
    return spread[2 * reach : size[0], 2 * reach : size[1]]


def resized(x: Array, size: tuple[int, int], how: Image.Resampling) -> Array:
    """Resizes to (height, width) without rounding."""
    planes = [x] if x.ndim == 2 else list(np.moveaxis(x, 2, 0))
    done = [
        np.asarray(Image.fromarray(p.astype(np.float32)).resize(size[::-1], how), dtype=np.float64)
        for p in planes
    ]
    return done[0] if x.ndim == 2 else np.stack(done, 2)


def eight_bit(x: Array) -> Array:
    """Rounds to 255 steps and clips."""
    rounded: Array = np.round((np.clip(x, -1, 1) + 1) * 127.5) / 127.5 - 1
    return rounded


def to_image(x: Array) -> Image.Image:
    """An 8-bit grey or colour picture."""
    return Image.fromarray(np.round((np.clip(x, -1, 1) + 1) * 127.5).astype(np.uint8))


def compressed(x: Array, quality: int) -> Array:
    """The picture after JPEG compression."""
    buffer = io.BytesIO()
    to_image(x).save(buffer, "JPEG", quality=quality)
    read: Array = np.asarray(Image.open(buffer), dtype=np.float64) / 127.5 - 1
    return read
