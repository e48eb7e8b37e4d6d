"""Total-variation least squares: a classical estimate of a picture from a noisy measurement.

Rudin, Osher & Fatemi 1992, "Nonlinear total variation based noise removal algorithms"; here for any
differentiable operator, minimised by Adam on the pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from aps_core.numerics.likelihood import Likelihood

WEIGHT = 6.0
"""Weight of the total variation in nats per unit of colour, for pictures in [-1, 1]."""


def total_variation(x_BCHW: Tensor) -> Tensor:
    """Isotropic total variation (B,): the sum of the gradient's length over all pixels, with the
    colours' gradients taken together so that their edges coincide.
    """
    down = F.pad(x_BCHW.diff(dim=2), (0, 0, 0, 1)).square()
    right = F.pad(x_BCHW.diff(dim=3), (0, 1)).square()
    return ((down + right).sum(1) + 1e-6).sqrt().flatten(1).sum(1)


def curvature(x_BCHW: Tensor) -> Tensor:
    """Total variation of the gradient (B,): the sum over all pixels of the length of the second
    derivatives, with the colours' taken together.

    Total variation fills a gap with steps between flat areas; curvature continues slopes through
    it (Lysaker, Lundervold & Tai 2003, "Noise removal using fourth-order partial differential
    equation").
    """
    padded = F.pad(x_BCHW, (1, 1, 1, 1), mode="replicate")
    right = padded.diff(dim=3)
    down = padded.diff(dim=2)
    across = right.diff(dim=3)[:, :, 1:-1].square()
    along = down.diff(dim=2)[..., 1:-1].square()
    mixed = right.diff(dim=2)[:, :, 1:, 1:].square()
    return ((across + along + 2 * mixed).sum(1) + 1e-6).sqrt().flatten(1).sum(1)


def with_weighted_colours(x_BCHW: Tensor, weight: float) -> Tensor:
    """Multiplies the colours' difference from grey by ``weight``, so that total variation and
    curvature penalise changes of colour more than changes of brightness: in photographs, colours
    change less.
    """
    if weight == 1:
        return x_BCHW
    grey_B1HW = x_BCHW.mean(1, keepdim=True)
    return grey_B1HW + weight * (x_BCHW - grey_B1HW)


def total_variation_estimate(
    likelihood: Likelihood,
    start_BCHW: Tensor,
    *,
    weight: float = WEIGHT,
    correction_weight: float = 0.0,
    curvature_weight: float = 0.0,
    colour_weight: float = 1.0,
    steps: int = 250,
    learning_rate: float = 0.05,
    bounded: bool = True,
    watch: Callable[[int, int, Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Minimises ``-log q(y | x) + weight TV(x) + correction_weight TV(x - start)``, plus
    ``curvature_weight`` times the curvature of both x and x - start.

    With a correction weight, the estimate adds to ``start`` what the measurement demands and
    keeps its texture.

    Args:
        likelihood: likelihood of the measurement.
        start_BCHW: initial pictures in [-1, 1].
        weight: weight of the picture's total variation, >= 0.
        correction_weight: weight of the total variation of the change, >= 0.
        curvature_weight: weight of the :func:`curvature` of picture and change, >= 0.
        colour_weight: weight of colours in these terms, relative to brightness; see
            :func:`with_weighted_colours`.
        steps: Adam steps; the learning rate falls to 0 on a cosine.
        learning_rate: learning rate of the first step.
        bounded: whether the estimate is clamped to [-1, 1]. A clamped estimate fits a noisy
            measurement less well.
        watch: called after every step with its number, ``steps``, the loss and the estimate; it may
            raise to cancel.

    Returns:
        Pictures (B, 3, H, W), in [-1, 1] if ``bounded``.
    """
    x = start_BCHW.detach().float().clone().requires_grad_()
    first_BCHW = with_weighted_colours(start_BCHW, colour_weight)
    # capturable: on a GPU, all steps can be recorded as a CUDA graph
    adam = torch.optim.Adam([x], lr=learning_rate, capturable=x.is_cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for done in range(steps):
        with torch.enable_grad():
            loss_B = likelihood.negative_log_likelihood(x)
            shown = with_weighted_colours(x, colour_weight)
            if weight:
                loss_B = loss_B + weight * total_variation(shown)
            if correction_weight:
                loss_B = loss_B + correction_weight * total_variation(shown - first_BCHW)
            if curvature_weight:
                bends_B = curvature(shown) + curvature(shown - first_BCHW)
                loss_B = loss_B + curvature_weight * bends_B
            (x.grad,) = torch.autograd.grad(loss_B.sum(), x)
        adam.step()
        schedule.step()
        if watch is not None:
            watch(done + 1, steps, loss_B.detach().mean(), x.detach())
    return x.detach().clamp(-1, 1) if bounded else x.detach()
