"""Layers with frozen weights, whose backward passes compute only the gradient of the input and
store little.

PyTorch's convolution stores its input, although the gradient of the input does not need it (see
arXiv:2404.12406). A group normalisation followed by SiLU stores two tensors. Here, a convolution
stores only its weight, and the pair stores only its input; the rest is recomputed. Results differ
only in the order of floating-point operations. Second derivatives are not supported.

The layers are ordinary modules with the checkpoint's names. They are trainable until ``freeze`` is
called.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from aps_core.tokenizers.group_norm import FusedNorm, Settings, stock_backward, stock_forward


class Conv2d(nn.Conv2d):
    """A convolution that stores no activation once frozen."""

    frozen = False

    def freeze(self) -> None:
        """Switches to the memory-saving backward pass."""
        self.frozen = True

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """(B, C_in, H, W) to (B, C_out, H', W')."""
        if self.frozen and x_BCHW.requires_grad and torch.is_grad_enabled():
            return _FrozenConv.apply(x_BCHW, self.weight, self.bias, self.stride, self.padding)  # type: ignore[no-any-return]
        return super().forward(x_BCHW)


class GroupNorm(nn.GroupNorm):
    """Group normalisation, followed by SiLU if ``silu``. Once frozen it stores only its input.

    With ``fused`` both directions are compiled; see
    :class:`aps_core.tokenizers.group_norm.FusedNorm`.
    """

    frozen = False
    fused: FusedNorm | None = None

    def __init__(self, groups: int, channels: int, eps: float, *, silu: bool) -> None:
        super().__init__(groups, channels, eps)
        self.silu = silu

    def freeze(self, fused: FusedNorm | None = None) -> None:
        """Switches to the memory-saving backward pass."""
        self.frozen = True
        self.fused = fused

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Same shape in and out."""
        settings = self.num_groups, self.eps, self.silu
        if self.frozen and x_BCHW.requires_grad and torch.is_grad_enabled():
            return _FrozenNorm.apply(x_BCHW, self.weight, self.bias, settings, self.fused)  # type: ignore[no-any-return]
        if self.fused is not None:
            return self.fused.forward(x_BCHW, self.weight, self.bias, settings)
        y_BCHW = super().forward(x_BCHW)
        return F.silu(y_BCHW) if self.silu else y_BCHW


class _FrozenConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
    ) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.settings = stride, padding
        ctx.geometry = x.shape, x.stride()
        return F.conv2d(x, weight, bias, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        # only shape and layout matter; the values are not read
        x = torch.empty_strided(*ctx.geometry, dtype=grad.dtype, device=grad.device)
        wanted = (True, False, False)
        dx = torch.ops.aten.convolution_backward(
            grad, x, weight, None, *ctx.settings, (1, 1), False, (0, 0), 1, wanted
        )[0]
        return dx, None, None, None, None


class _FrozenNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        settings: Settings,
        fused: FusedNorm | None,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.settings, ctx.fused = settings, fused
        normalise = stock_forward if fused is None else fused.forward
        return normalise(x, weight, bias, settings)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        differentiate = stock_backward if ctx.fused is None else ctx.fused.backward
        x, weight, bias = ctx.saved_tensors
        dx = differentiate(grad, x, weight, bias, ctx.settings)
        return dx, None, None, None, None
