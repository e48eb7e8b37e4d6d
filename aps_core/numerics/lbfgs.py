"""Minimisation of a smooth function by L-BFGS (Nocedal & Wright 2006)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from aps_core.errors import SamplingDiverged


def minimum(loss: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """Approximate local minimiser of ``loss`` (scalar), same shape as ``start``.

    Evaluates loss and gradient about ``steps`` times, less often if the loss stops falling.

    Raises:
        SamplingDiverged: the loss is not finite.
    """
    x = start.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x],
        max_iter=steps,
        max_eval=steps,
        tolerance_grad=1e-3,
        tolerance_change=1e-6,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def evaluated() -> Tensor:
        with torch.enable_grad():
            value = loss(x)
            (gradient,) = torch.autograd.grad(value, x)
        x.grad = gradient.contiguous()  # PyTorch's L-BFGS flattens it as a view
        value = value.detach()
        if not math.isfinite(value):
            raise SamplingDiverged(f"The loss became {float(value)}.")
        return value

    optimizer.step(evaluated)
    return x.detach()
