"""Conjugate gradients for symmetric positive definite systems."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def solve(
    matrix: Callable[[Tensor], Tensor],
    goal: Tensor,
    start: Tensor,
    steps: int,
    *,
    scale: Tensor | float = 1.0,
    tolerance: float = 1e-12,
) -> Tensor:
    """Solves ``matrix(x) = goal`` approximately (Hestenes & Stiefel 1952).

    Args:
        matrix: multiplies the matrix by a tensor of the shape of ``goal``.
        goal: right-hand side, any shape.
        start: initial x.
        steps: maximum number of products after the first.
        scale: approximate inverse of the matrix's diagonal (preconditioner).
        tolerance: squared residual, relative to that of x = 0, at which the iteration stops.
    """
    x, residual = start, goal - matrix(start)
    towards = scaled = scale * residual
    size = (residual * scaled).sum()
    enough = tolerance * float((goal * scale * goal).sum())
    for _ in range(steps):
        if float(size) <= enough:
            break
        image = matrix(towards)
        step = size / (towards * image).sum()
        x, residual = x + step * towards, residual - step * image
        scaled = scale * residual
        last, size = size, (residual * scaled).sum()
        towards = scaled + size / last * towards
    return x
