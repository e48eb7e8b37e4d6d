"""Search for the blur of a picture as a kernel of any shape.

1. Estimate candidates from narrow kernels, coarse to fine, for several edge penalties and sides.
2. Re-estimate the candidates with the most evidence, starting one resolution lower.
3. Run EM from the best candidates, with more steps for fewer of them each time. The result is the
   kernel with the most evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter

import numpy as np
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from aps_core.errors import SamplingCancelled
from aps_core.identify.blind.edge_prediction import predicted
from aps_core.identify.blind.effort import PATCH
from aps_core.identify.blind.kernel import centred, deviation, enlarged, light_of, likeness
from aps_core.identify.blind.photograph import most_detailed, reduction
from aps_core.identify.blind.sparse_gradients import SparseGradients
from aps_core.identify.blind.thresholds import KERNEL
from aps_core.imaging import images, noise
from aps_core.operators.base import KERNEL_SIDE, OperatorSpec
from aps_core.types import InnerHook, InnerInfo

RADIUS = 10
"""Half of the kernel's side in pixels of the examined picture."""
SIDES = (9, 15, 21)
"""Sides from which the candidates' resolutions follow: at the coarsest they are about 5 pixels."""
PRICES = (4e-3, 1e-2, 2.4e-2)
"""Edge penalties; see :func:`aps_core.identify.blind.edge_prediction.predicted`."""
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (-1, 1))
"""Offsets (rows, columns) between the two pixels of the first kernels."""
ROUNDS, AGAIN = 5, 3
"""Rounds of edge prediction at each resolution, and when a candidate is re-estimated."""
RENEWED, REPETITIONS = 4, 3
"""Number of candidates that are re-estimated, and how often at most."""
SHORT, LONG = 2, 40
"""Steps of EM before candidates are first compared, and of the final ones."""
HALVINGS = ((8, 8), (4, 20))
"""Numbers of candidates, and of their steps of EM, before the final ones are chosen."""


@dataclass(frozen=True)
class KernelEstimate:
    """Kernel of any shape, in pixels of the picture."""

    kernel_KK: Tensor
    """Kernel with sum 1 and an odd side."""
    path: list[Tensor]
    """Kernels from the start to the result, at the resolutions of their estimation."""
    spread: float
    """Mean difference (1 - :func:`likeness`) from the kernels that EM found from other starts."""
    support: float
    """Evidence in nats beyond that of the known blur, the penalty of the Bayesian information
    criterion for its weights (Schwarz 1978), and :attr:`KernelThresholds.evidence_per_pixel`.
    Positive if the picture supports the kernel; always negative for one that is no blur
    (:attr:`KernelThresholds.narrow`).
    """


@dataclass(frozen=True)
class Candidate:
    """Kernel, its path and its evidence."""

    path: tuple[Tensor, ...]
    evidence: float

    @property
    def kernel_KK(self) -> Tensor:
        """Last kernel of the path."""
        return self.path[-1]


def kernel_of(
    image: Image.Image,
    known: OperatorSpec,
    *,
    chains: int = 3,
    sigma: float | None = None,
    rounding: float = 0.0,
    on_inner: InnerHook | None = None,
) -> KernelEstimate:
    """Estimates the kernel of a picture's blur.

    Args:
        image: RGB.
        known: parametric blur, in pixels of the picture, with which the result is compared.
        chains: starts of the final EM, >= 2.
        sigma: standard deviation of the noise on the [-1, 1] scale; None estimates it.
        rounding: standard deviation of an additional error, such as that of JPEG.
        on_inner: called between candidates; returning False cancels.

    Raises:
        SamplingCancelled: ``on_inner`` returned False.
    """
    zoom = reduction(image, deviation(light_of(known)))
    y_HW, error = examined_grey(image, zoom, sigma, rounding)
    search = _Search(y_HW, error, zoom, _reporter(on_inner, chains))
    found = search.distinct(map(search.from_coarse, product(DIRECTIONS, SIDES, PRICES)))
    for _ in range(REPETITIONS):
        before = found[0].evidence
        renewed = map(search.renewed, product(found[:RENEWED], PRICES))
        found = search.distinct([*renewed, *found])
        if found[0].evidence - before < KERNEL.gain * abs(before):
            break
    for count, steps in HALVINGS:
        found = search.distinct(search.improved(each.path, steps) for each in found[:count])
    settled = (search.improved(each.path, LONG) for each in found[:chains])
    best, *others = sorted(settled, key=attrgetter("evidence"), reverse=True)
    side = min(2 * search.radius * zoom + 1, KERNEL_SIDE)
    differences = [1 - likeness(best.kernel_KK, each.kernel_KK) for each in others]
    return KernelEstimate(
        kernel_KK=centred(enlarged(best.kernel_KK, zoom), side),
        path=[*best.path],
        spread=float(np.mean(differences)) if differences else 0.0,
        support=search.support(best.kernel_KK, light_of(known.scaled(1 / zoom))),
    )


def examined_grey(
    image: Image.Image, zoom: int, sigma: float | None, rounding: float, side: int = PATCH
) -> tuple[Tensor, float]:
    """Most detailed part (H, W) in grey, at most ``side`` pixels a side, of a picture reduced by
    ``zoom``, and the standard deviation of its errors. Noise is estimated on the colour channels,
    where it is easier to separate from detail, and assumed independent between them.
    """
    part = image.resize(
        [math.ceil(length / zoom) for length in image.size], Image.Resampling.LANCZOS
    )
    y_CHW = images.to_tensor(images.Picture(part.crop(most_detailed(part, side))))
    deviation = noise.estimate_sigma(y_CHW) if sigma is None else sigma / zoom
    if not bool((y_CHW == y_CHW[:1]).all()):  # grey is the mean of three channels
        deviation /= math.sqrt(3)
    return y_CHW.mean(0), math.hypot(max(deviation, KERNEL.least_noise), rounding / zoom)


class _Search:
    """Search for the kernel of one picture (H, W)."""

    def __init__(self, y_HW: Tensor, sigma: float, zoom: int, report: Callable[[], None]) -> None:
        self.y_HW = y_HW
        self.picture = SparseGradients(y_HW, sigma)
        most = min(min(y_HW.shape) // 2 - 1, KERNEL_SIDE // (2 * zoom))
        self.radius = max(1, min(RADIUS, most))
        self.report = report

    def from_coarse(self, chosen: tuple[tuple[int, int], int, float]) -> Candidate:
        """Candidate for a direction of the first kernel, a side, which determines the resolutions,
        and an edge penalty.
        """
        direction, side, price = chosen
        path: list[Tensor] = []
        scale = 1.0
        for halvings in range(max(0, math.ceil(2 * math.log2(side / 5))), -1, -1):
            before, scale = scale, 2 ** (halvings / 2)
            if path:
                start_KK = self._at(path[-1], before / scale, scale)
            else:
                start_KK = self._narrow(scale, direction)
            path.append(predicted(self._reduced(scale), start_KK, price, ROUNDS))
        return self.improved(path, SHORT)

    def renewed(self, chosen: tuple[Candidate, float]) -> Candidate:
        """Candidate re-estimated with an edge penalty, first at a reduced resolution."""
        candidate, price = chosen
        back = math.sqrt(2)
        coarse_JJ = self._at(candidate.kernel_KK, 1 / back, back)
        coarse_JJ = predicted(self._reduced(back), coarse_JJ, price, AGAIN)
        fine_KK = predicted(self.y_HW, self._at(coarse_JJ, back, 1.0), price, AGAIN)
        return self.improved([*candidate.path, coarse_JJ, fine_KK], SHORT)

    def improved(self, path: Sequence[Tensor], steps: int) -> Candidate:
        """Candidate after ``steps`` of EM from the end of a path."""
        side = 2 * self.radius + 1
        improved_KK = self.picture.improved(centred(path[-1], side), steps)
        kernel_KK = centred(improved_KK, side)
        self.report()
        return Candidate((*path, kernel_KK), self._evidence(kernel_KK))

    def distinct(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Candidates sorted by evidence, best first, without those similar to a better one."""
        kept: list[Candidate] = []
        for each in sorted(candidates, key=attrgetter("evidence"), reverse=True):
            if all(likeness(each.kernel_KK, other.kernel_KK) < KERNEL.alike for other in kept):
                kept.append(each)
        return kept

    def support(self, kernel_KK: Tensor, simpler_JJ: Tensor) -> float:
        """See :attr:`KernelEstimate.support`."""
        weights, pixels = int((kernel_KK > KERNEL.weight).sum()), self.y_HW.numel()
        price = weights * math.log(pixels) / 2 + KERNEL.evidence_per_pixel * pixels
        if deviation(kernel_KK) < KERNEL.narrow:
            return -price
        wide = 2 * math.ceil(3 * deviation(simpler_JJ)) + 1
        side = min(max(kernel_KK.shape[0], wide), KERNEL_SIDE)
        free, simpler = (self._evidence(centred(each, side)) for each in (kernel_KK, simpler_JJ))
        return free - simpler - price

    def _evidence(self, kernel_KK: Tensor) -> float:
        return self.picture.evidence(kernel_KK, self.picture.posterior(kernel_KK))

    def _reduced(self, scale: float) -> Tensor:
        if scale == 1:
            return self.y_HW
        return F.interpolate(
            self.y_HW[None, None], scale_factor=1 / scale, mode="bicubic", antialias=True
        )[0, 0]

    def _side(self, scale: float) -> int:
        return 2 * max(1, math.ceil(self.radius / scale)) + 1

    def _at(self, kernel_KK: Tensor, factor: float, scale: float) -> Tensor:
        """Kernel enlarged by ``factor``, with the side for the resolution ``scale``."""
        return centred(enlarged(kernel_KK, factor), self._side(scale))

    def _narrow(self, scale: float, direction: tuple[int, int]) -> Tensor:
        """First kernel: two adjacent pixels."""
        side = self._side(scale)
        middle = side // 2
        kernel_KK = self.y_HW.new_zeros(side, side)
        kernel_KK[middle, middle] = 0.5
        kernel_KK[middle + direction[0], middle + direction[1]] = 0.5
        return kernel_KK


def _reporter(on_inner: InnerHook | None, chains: int) -> Callable[[], None]:
    """Callback that reports candidates as inner iterations of a first reverse step."""
    predictions = (len(DIRECTIONS) * len(SIDES) + REPETITIONS * RENEWED) * len(PRICES)
    total = predictions + sum(count for count, _ in HALVINGS) + chains
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        info = InnerInfo(step=1, total=1, iteration=done, inner_steps=total, loss=0.0)
        if on_inner is not None and on_inner(info) is False:
            raise SamplingCancelled("Stopped while the blur was searched.")

    return report
