"""Colours that agree with the measurement and follow brightness.

A blur also smears colours, and a prior over brightness sharpens only the brightness. In small areas
of a picture, colours are nearly an affine function of brightness (Levin, Lischinski & Weiss 2008,
"A Closed-Form Solution to Natural Image Matting"): both change together at an edge. Given the sharp
brightness b, the colours c of

    min_c  -log q(y | b + c) + w sum_k sqrt(r_k(c) + SOFT^2)

are sharp as well. r_k is the variance of c in the 3x3 pixels around pixel k that no affine function
of b explains. The square root allows edges of colour alone at some pixels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.numerics.lbfgs import minimum
from aps_core.numerics.likelihood import Likelihood
from aps_core.tokenizers.pixels import coloured

SOFT = 0.02
"""Deviation of a colour in [-1, 1] below which the penalty is quadratic."""
RIDGE = 1e-3
"""Added to the variance of brightness, so that in flat areas brightness explains little."""
UNIT = 0.05
"""Scale of the optimised changes, for colours in [-1, 1]."""


def unexplained(colours_BCHW: Tensor, b_B1HW: Tensor) -> Tensor:
    """Variance (B, H, W) of the colours around every pixel that brightness does not explain."""
    b_mean, c_mean = _means(b_B1HW), _means(colours_BCHW)
    b_variance = (_means(b_B1HW.square()) - b_mean.square()).clamp(min=0) + RIDGE
    covariance = _means(colours_BCHW * b_B1HW) - c_mean * b_mean
    variance = _means(colours_BCHW.square()) - c_mean.square()
    return (variance - covariance.square() / b_variance).clamp(min=0).sum(1)


def fitted_colours(
    likelihood: Likelihood, b_BHW: Tensor, colours_BCHW: Tensor, weight: float, steps: int
) -> Tensor:
    """Optimises colours c (B, C, H, W), which have brightness 0, from those that the prior expects.

    Args:
        likelihood: likelihood of the measurement.
        b_BHW: brightness in [-1, 1].
        colours_BCHW: initial colours, which are added to the brightness.
        weight: w > 0.
        steps: maximum number of evaluations.

    Raises:
        SamplingDiverged: the loss is not finite.
    """
    b_B1HW = b_BHW[:, None]

    def changed(change_B2HW: Tensor) -> Tensor:
        return colours_BCHW + coloured(UNIT * change_B2HW)

    def loss(change_B2HW: Tensor) -> Tensor:
        c_BCHW = changed(change_B2HW)
        nats_B = likelihood.negative_log_likelihood(b_B1HW + c_BCHW)
        deviation_BHW = (unexplained(c_BCHW, b_B1HW) + SOFT**2).sqrt()
        return nats_B.sum() + weight * deviation_BHW.sum()

    return changed(minimum(loss, torch.zeros_like(colours_BCHW[:, :2]), steps))


def _means(x_BCHW: Tensor) -> Tensor:
    """Means over the 3x3 pixels around every pixel; the border is repeated."""
    return F.avg_pool2d(F.pad(x_BCHW, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
