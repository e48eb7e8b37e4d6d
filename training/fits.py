"""Fits of pictures to linear measurements: normal equations, solved by conjugate gradients for
every picture by itself; differentiable, and a single launch on a GPU.

Shapes: pictures of H rows and W columns, measurements of h and w; kernels of K rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from aps_core.operators.blur import reflecting_filter
from aps_core.sampling.brightness_fit import single_pixels
from training.block_rounding import information
from training.recorded import recorded

FIT_STEPS = 24
"""Of conjugate gradients."""
TINY = 1e-20
"""Squared residual at which a system is solved."""

Linear = Callable[[Tensor], Tensor]


def mixing(kernel_B1KK: Tensor, factor: int, rows: int, columns: int) -> Linear:
    """Blurs pictures (B, C, ``rows``, ``columns``), each by its own kernel, and reduces them by a
    factor.
    """
    blur = reflecting_filter(kernel_B1KK, rows, columns)

    def mixed(x_BCHW: Tensor) -> Tensor:
        y_BCHW = blur(x_BCHW)
        if factor == 1:
            return y_BCHW
        return F.interpolate(y_BCHW, scale_factor=1 / factor, mode="bicubic", antialias=True)

    return mixed


def adjoint(linear: Linear, like: Tensor) -> Linear:
    """The transposed map, of one whose arguments are like ``like``."""
    with torch.enable_grad():
        transposed = torch.func.vjp(linear, torch.zeros_like(like))[1]
    return lambda y: transposed(y)[0]


def conjugate_gradients(matrix: Linear, goal_BCHW: Tensor, steps: int) -> Tensor:
    """x of ``matrix(x) = goal``, a symmetric positive definite system for every picture (Hestenes &
    Stiefel 1952). The host never waits for the device.
    """

    def dot(a_BCHW: Tensor, b_BCHW: Tensor) -> Tensor:
        return (a_BCHW * b_BCHW).sum((1, 2, 3), keepdim=True)

    x_BCHW, residual_BCHW = torch.zeros_like(goal_BCHW), goal_BCHW
    towards_BCHW, size_B111 = residual_BCHW, dot(residual_BCHW, residual_BCHW)
    for _ in range(steps):
        image_BCHW = matrix(towards_BCHW)
        step_B111 = size_B111 / dot(towards_BCHW, image_BCHW).clamp(min=TINY)
        x_BCHW = x_BCHW + step_B111 * towards_BCHW
        residual_BCHW = residual_BCHW - step_B111 * image_BCHW
        last_B111, size_B111 = size_B111, dot(residual_BCHW, residual_BCHW)
        towards_BCHW = residual_BCHW + size_B111 / last_B111.clamp(min=TINY) * towards_BCHW
    return x_BCHW


class Seen(NamedTuple):
    """What a system for changes of brightness depends on, beside their precision."""

    kernel_B1KK: Tensor
    information_B1hw: Tensor
    """Number of colours known of every value, over the variance of its noise."""
    rounding_BC88: Tensor
    """Precision of a JPEG's coefficients (:mod:`training.block_rounding`)."""
    factor: int
    area_weight: float


def held(precision_B1HW: Tensor, v_B1HW: Tensor, area_weight: float) -> Tensor:
    """Product of a change with the Hessian matrix of its divergence: that of single pixels, and
    a share ``area_weight`` of that of areas, as in
    :class:`aps_core.sampling.brightness_fit.BrightnessFit`.
    """
    areas_B1HW = area_weight * precision_B1HW * v_B1HW
    if area_weight == 1:
        return areas_B1HW
    with torch.enable_grad():
        single = torch.func.vjp(single_pixels, v_B1HW[:, 0])
        back_BHW = single[1](precision_B1HW[:, 0] * single[0])[0]
    product_B1HW: Tensor = areas_B1HW + (1 - area_weight) * back_BHW[:, None]
    return product_B1HW


def solution(seen: Seen, precision_B1HW: Tensor, goal_B1HW: Tensor) -> Tensor:
    """x of ``(P + H) x = goal``, with the prior's matrix P (:func:`held`) and the Hessian matrix H
    of the negative log-likelihood.
    """
    rows, columns = goal_B1HW.shape[2:]
    mixed = mixing(seen.kernel_B1KK, seen.factor, rows, columns)
    back = adjoint(mixed, goal_B1HW)
    scale_B1HW = precision_B1HW.rsqrt()

    def matrix(v_B1HW: Tensor) -> Tensor:
        x_B1HW = scale_B1HW * v_B1HW
        pulled_B1HW = held(precision_B1HW, x_B1HW, seen.area_weight)
        pulled_B1HW = pulled_B1HW + back(seen.information_B1hw * mixed(x_B1HW))
        if seen.factor == 1:
            pulled_B1HW = pulled_B1HW + information(seen.rounding_BC88, x_B1HW)
        return scale_B1HW * pulled_B1HW

    return scale_B1HW * conjugate_gradients(matrix, scale_B1HW * goal_B1HW, FIT_STEPS)


def solved(seen: Seen, precision_B1HW: Tensor, goal_B1HW: Tensor) -> Tensor:
    """:func:`solution`, recorded on a GPU."""

    def from_tensors(*tensors: Tensor) -> Tensor:
        kernel_B1KK, information_B1hw, rounding_BC88, precision_B1HW, goal_B1HW = tensors
        new = seen._replace(
            kernel_B1KK=kernel_B1KK, information_B1hw=information_B1hw, rounding_BC88=rounding_BC88
        )
        return solution(new, precision_B1HW, goal_B1HW)

    known = seen.kernel_B1KK, seen.information_B1hw, seen.rounding_BC88
    tensors = *known, precision_B1HW, goal_B1HW
    return recorded(("fit", seen.factor, seen.area_weight), from_tensors, *tensors)


class Fitted(Function):
    """Solves ``(P + H) change = pull``, and the same system once more for the gradients in the
    picture that is fitted and in the precision with which it holds.
    """

    @staticmethod
    def forward(
        ctx: Any, x_BCHW: Tensor, precision_B1HW: Tensor, pull_B1HW: Tensor, seen: Seen
    ) -> Tensor:
        change_B1HW = solved(seen, precision_B1HW, pull_B1HW)
        ctx.seen = seen
        ctx.save_for_backward(precision_B1HW, change_B1HW)
        return x_BCHW + change_B1HW

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BCHW: Tensor) -> tuple[Tensor, Tensor, None, None]:
        precision_B1HW, change_B1HW = ctx.saved_tensors
        grad_B1HW = grad_BCHW.sum(1, keepdim=True)
        back_B1HW = solved(ctx.seen, precision_B1HW, grad_B1HW)
        share = ctx.seen.area_weight
        measured_B1HW = grad_B1HW - held(precision_B1HW, back_B1HW, share)
        grad_x_BCHW = grad_BCHW - measured_B1HW / grad_BCHW.shape[1]
        single_BHW = single_pixels(back_B1HW[:, 0]) * single_pixels(change_B1HW[:, 0])
        weighed_B1HW = (1 - share) * single_BHW[:, None] + share * back_B1HW * change_B1HW
        return grad_x_BCHW, -weighed_B1HW, None, None
