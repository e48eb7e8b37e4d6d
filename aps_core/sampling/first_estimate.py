"""First estimates without a prior, from which samplers start.

Shapes: see :mod:`aps_core.types`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Self

import torch
from torch import Tensor

from aps_core.imaging.blending import filled
from aps_core.imaging.dct_shrinkage import shrunk, without_noise
from aps_core.imaging.filters import gaussian, separable
from aps_core.imaging.known_pixels import flat_share, inside_clipped, with_known
from aps_core.imaging.total_variation import WEIGHT, total_variation_estimate
from aps_core.numerics.likelihood import Likelihood, MeasurementLikelihood, Pixels
from aps_core.sampling.problem import Problem
from aps_core.sampling.shrinkage_estimate import shrinkage_estimate
from aps_core.types import Objective

Watch = Callable[[int, int, Tensor, Tensor], None]
"""Called after every step with its number, their number, the loss and the estimate; it may raise to
cancel.
"""
FILLING = 4.0
"""Weight of the curvature in estimates that fill gaps."""
FILLING_SIGMA = 0.05
"""Noise for which the weights of filling were chosen. With less noise, they are scaled to give the
same smoothness.
"""
LEAST_NOISE = 0.05
"""Minimum noise of measurements with missing pixels. In training, measured pixels were noisy, which
distinguished them from filled gaps; without noise, priors confuse the two.
"""
COLOURS = 4.0
"""Weight of colours in the total variation of clipped pictures, relative to brightness. Where only
some channels were clipped, the others determine how they continue.
"""
SOFTNESS = 4.0
"""Standard deviation, in pixels, of the blur of the initial filling of gaps."""


class Measured(NamedTuple):
    """What the measurement determines, the same in all rounds."""

    pixels: Pixels | None
    """Measured pixels, if pixels were measured individually."""
    white: Objective
    """The objective, treating noise as white."""
    whitened: Objective
    """The objective, accounting for coloured noise."""

    @classmethod
    def of(cls, problem: Problem, samples: int) -> Self:
        """Prepares a problem with ``samples`` pictures.

        If pixels are missing, both objectives get at least :data:`LEAST_NOISE`; ``pixels``, which
        go into the result, do not.
        """
        whitened = problem.whitened
        if not isinstance(whitened, MeasurementLikelihood):
            return cls(None, problem.objective, whitened)
        pixels = whitened.pixels(grey_start(problem, samples))
        if pixels is None or not pixels.missing:
            return cls(pixels, problem.objective, whitened)
        noisier = whitened.noisier(LEAST_NOISE)
        return cls(pixels, noisier if pixels.white else problem.objective, noisier)

    def result(self, x_BCHW: Tensor, first_BCHW: Tensor, clipped_reach: int | None) -> Tensor:
        """Pictures ``x`` with a first estimate where that is more certain, and with known pixels.

        Args:
            x_BCHW: last estimate.
            first_BCHW: first estimate.
            clipped_reach: distance in pixels from measured values beyond which clipped areas show
                the first estimate; None: never.
        """
        x_BCHW = x_BCHW.lerp(first_BCHW, flat_share(first_BCHW))
        if self.pixels is None:
            return x_BCHW
        x_BCHW = with_known(self.pixels, x_BCHW, first_BCHW)
        if clipped_reach is None or self.pixels.missing:
            return x_BCHW
        return inside_clipped(self.pixels, x_BCHW, first_BCHW, clipped_reach)


def first_estimate(problem: Problem, samples: int, watch: Watch) -> Tensor | None:
    """The total-variation estimate (B, 3, H, W); None without a likelihood."""
    if not isinstance(problem.objective, Likelihood):
        return None
    return total_variation_estimate(problem.objective, grey_start(problem, samples), watch=watch)


def classical_estimate(
    objective: Likelihood,
    start_BCHW: Tensor,
    steps: int,
    clipped_smoothness: float,
    watch: Watch | None = None,
    *,
    filling_steps: int | None = None,
) -> Tensor:
    """Estimates pictures (B, 3, H, W) in [-1, 1] by classical methods, chosen by what was measured.

    Noisy pixels are shrunk in their cosine transform; for blurred and reduced pictures, shrinkage
    alternates with fits to the measurement. Missing and clipped pixels are first filled by
    continuing slopes, because total variation would fill them with steps. This moves clipped values
    far beyond the limit. Without a :class:`~aps_core.numerics.likelihood.MeasurementLikelihood`,
    the result is the total-variation estimate.

    Args:
        objective: likelihood of the measurement.
        start_BCHW: grey pictures of the right size.
        steps: evaluations of the likelihood.
        clipped_smoothness: weight of the total variation of clipped pictures; a weight > 0 keeps
            clipped values closer to the limit.
        watch: called after every step; may raise to cancel.
        filling_steps: steps for missing or clipped pixels; default: ``steps``.
    """
    if not isinstance(objective, MeasurementLikelihood):
        return _smooth(objective, start_BCHW, steps, watch, weight=WEIGHT)
    coverage = objective.coverage(start_BCHW)
    if coverage == "mixtures":
        return shrinkage_estimate(objective, start_BCHW, objective.sigma, steps, watch)
    seen = objective.pixels(start_BCHW)
    if seen is not None and coverage == "pixels":
        return shrunk(seen.y_BCHW, seen.sigma).clamp(-1, 1)
    weight = clipped_smoothness
    if seen is not None and seen.missing:
        start_BCHW, weight = _surroundings(seen), 0.0
    steps = filling_steps or steps
    if seen is None:
        return _smooth(objective, start_BCHW, steps, watch, weight=weight)
    against = max(FILLING_SIGMA / objective.sigma, 1.0) ** 2
    filled_BCHW = _smooth(objective, start_BCHW, steps, watch, weight=weight, against=against)
    return without_noise(seen, filled_BCHW)


def _smooth(
    objective: Likelihood,
    start_BCHW: Tensor,
    steps: int,
    watch: Watch | None,
    *,
    weight: float,
    against: float = 1.0,
) -> Tensor:
    """Estimate that penalises total variation if ``weight`` > 0, else curvature; ``against``
    multiplies the penalty.
    """
    return total_variation_estimate(
        objective,
        start_BCHW,
        weight=against * weight,
        curvature_weight=0.0 if weight else against * FILLING,
        colour_weight=COLOURS if weight else 1.0,
        steps=steps,
        learning_rate=0.7 / math.sqrt(steps),
        watch=watch,
    )


def prior_estimate(problem: Problem, z_BL: Tensor, guidance_scale: float) -> Tensor:
    """Pictures (B, 3, H, W) in [-1, 1] of the codes that the prior expects."""
    tokenizer = problem.prior.tokenizer
    p_BLK = problem.logits(z_BL, 1.0, guidance_scale).softmax(-1)
    return tokenizer.decode(p_BLK @ tokenizer.codebook_KD, problem.grid).clamp(-1, 1)


def grey_start(problem: Problem, samples: int) -> Tensor:
    """Grey pictures (B, 3, H, W) of the size of the problem's token grid."""
    (rows, columns), tokenizer = problem.grid, problem.prior.tokenizer
    shape = (samples, 3, rows * tokenizer.stride, columns * tokenizer.stride)
    return tokenizer.codebook_KD.new_zeros(shape).float()


def _surroundings(seen: Pixels) -> Tensor:
    """Smooth pictures (B, 3, H, W) from the colours of nearby known pixels. Starting from grey, it
    would take too many steps to fill a large hole.
    """
    known_HW = seen.known_BCHW[0].all(0).float()
    line = gaussian(SOFTNESS, round(2 * SOFTNESS), known_HW.dtype, known_HW.device)
    inside_HW = separable(torch.ones_like(known_HW), line)
    filled_BCHW = torch.stack([filled(y_CHW.clamp(-1, 1), known_HW) for y_CHW in seen.y_BCHW])
    return separable(filled_BCHW, line) / inside_HW
