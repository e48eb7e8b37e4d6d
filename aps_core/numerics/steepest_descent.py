"""One step of steepest descent on a likelihood: how the measurement would change an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.numerics.likelihood import Likelihood

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

PROBE = 0.01
"""Step length of the finite difference that measures curvature, for pictures in [-1, 1]."""


def steepest_step(likelihood: Likelihood, x_BCHW: Tensor) -> Tensor:
    """Moves every picture along the negative gradient of its negative log-likelihood, to the
    minimum of a parabola fitted through two gradients (Cauchy 1847).

    If pixels are measured individually, the result is the measurement. Otherwise it adds the detail
    that the measurement demands, together with its noise. Pictures are in [-1, 1]; a picture whose
    likelihood has no positive curvature along the gradient stays unchanged.
    """

    def gradient(at_BCHW: Tensor) -> Tensor:
        at_BCHW = at_BCHW.detach().requires_grad_()
        with torch.enable_grad():
            loss = likelihood.negative_log_likelihood(at_BCHW).sum()
        return torch.autograd.grad(loss, at_BCHW)[0]

    def size(v_BCHW: Tensor) -> Tensor:
        """Root mean square (B, 1, 1, 1)."""
        return v_BCHW.square().mean((1, 2, 3), keepdim=True).sqrt()

    x_BCHW = x_BCHW.float()
    uphill_BCHW = gradient(x_BCHW)
    steepness_B111 = size(uphill_BCHW)
    down_BCHW = -uphill_BCHW / steepness_B111.clamp(min=torch.finfo(torch.float32).tiny)
    change_BCHW = gradient(x_BCHW + PROBE * down_BCHW) - uphill_BCHW
    curvature_B111 = (change_BCHW * down_BCHW).mean((1, 2, 3), keepdim=True) / PROBE
    # a Python number could not be recorded in a CUDA graph
    straight_B111 = torch.zeros_like(steepness_B111)
    length_B111 = torch.where(curvature_B111 > 0, steepness_B111 / curvature_B111, straight_B111)
    return (x_BCHW + length_B111 * down_BCHW).clamp(-1, 1)
