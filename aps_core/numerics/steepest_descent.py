"""One step of steepest descent: how a measurement would change an estimate, as a picture."""

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
"""Length of the step by which the curvature is measured, for pictures in [-1, 1]."""


def steepest_step(likelihood: Likelihood, x_BCHW: Tensor) -> Tensor:
    """Moves every picture down the gradient of its negative log-likelihood, as far as a parabola
    through two gradients falls (Cauchy 1847).

    Where pixels are measured by themselves, the result is the measurement; otherwise it is sharp
    where the measurement demands it, and noisy where it is noisy. Pictures are in [-1, 1]; where
    the likelihood does not curve upwards along its gradient, they stay as they are.
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
    # a number in its place could not be recorded in a CUDA graph
    straight_B111 = torch.zeros_like(steepness_B111)
    length_B111 = torch.where(curvature_B111 > 0, steepness_B111 / curvature_B111, straight_B111)
    return (x_BCHW + length_B111 * down_BCHW).clamp(-1, 1)
