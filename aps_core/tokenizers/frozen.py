"""Layers of a network whose weights are frozen: backward passes that reach the input only, and keep
little for it.

PyTorch's convolution keeps its input although the gradient towards the input does not need it
(known from arXiv:2404.12406), and a group normalisation followed by SiLU keeps two tensors. Here a
convolution keeps its weight alone, and the pair keeps its input; the rest is computed again. The
mathematics is the same, only the order of floating-point operations differs. No second derivatives.

The layers are ordinary modules under the checkpoint's names, and train as such until ``freeze`` is
called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Conv2d(nn.Conv2d):
    """A convolution that, once frozen, keeps no activation."""

    frozen = False

    def freeze(self) -> None:
        """Switches to the lean backward pass."""
        self.frozen = True

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """(B, C_in, H, W) to (B, C_out, H', W')."""
        if self.frozen and x_BCHW.requires_grad and torch.is_grad_enabled():
            return _FrozenConv.apply(x_BCHW, self.weight, self.bias, self.stride, self.padding)  # type: ignore[no-any-return]
        return super().forward(x_BCHW)


class GroupNorm(nn.GroupNorm):
    """Group normalisation, followed by SiLU when ``silu``; once frozen it keeps its input alone.

    ``fused`` compiles each direction into a pair of kernels (a reduction, a pointwise pass) for
    CUDA, where the stock normalisation would also leave the channels-last layout.
    """

    frozen = False
    fused = False

    def __init__(self, groups: int, channels: int, eps: float, *, silu: bool) -> None:
        super().__init__(groups, channels, eps)
        self.silu = silu

    def freeze(self, *, fused: bool = False) -> None:
        """Switches to the lean backward pass."""
        self.frozen, self.fused = True, fused

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Same shape in and out."""
        if self.frozen and x_BCHW.requires_grad and torch.is_grad_enabled():
            return _FrozenNorm.apply(  # type: ignore[no-any-return]
                x_BCHW, self.weight, self.bias, self.num_groups, self.eps, self.silu, self.fused
            )
        y = super().forward(x_BCHW)
        return F.silu(y) if self.silu else y


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
        # its shape and layout count, its values are not read
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
        groups: int,
        eps: float,
        silu: bool,
        fused: bool,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.settings = groups, eps, silu
        ctx.fused = fused
        return (
            _compiled(norm_forward, *ctx.settings)(x, weight, bias)
            if fused
            else _stock_forward(x, weight, bias, *ctx.settings)
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = (grad, *ctx.saved_tensors)
        dx = (
            _compiled(norm_backward, *ctx.settings)(*tensors)
            if ctx.fused
            else _stock_backward(*tensors, *ctx.settings)
        )
        return dx, None, None, None, None, None, None


def _stock_norm(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if (
        x.device.type == "cpu"
        # float32 weights give float32 statistics of a bfloat16 input; CUDA's kernel takes one dtype
        # only
    ):
        weight, bias = weight.float(), bias.float()
    return torch.native_group_norm(
        x, weight, bias, len(x), x.shape[1], x.shape[2:].numel(), groups, eps
    )


def _stock_forward(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> Tensor:
    y = _stock_norm(x, weight, bias, groups, eps)[0]
    return F.silu(y, inplace=True) if silu else y


def _stock_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> Tensor:
    """PyTorch's own kernels; normalising again costs less than keeping what it gave."""
    y, mean, rstd = _stock_norm(x, weight, bias, groups, eps)
    s = torch.ops.aten.silu_backward(grad, y) if silu else grad
    if (
        x.device.type == "cpu"
    ):  # in bfloat16 and channels-last this kernel is nine times slower than in float32
        s, x, weight = s.float(), x.float(), weight.float()
    # the kernel reads raw memory
    layout = torch.contiguous_format if x.is_contiguous() else torch.channels_last
    s, x = s.contiguous(memory_format=layout), x.contiguous(memory_format=layout)
    size = len(x), x.shape[1], x.shape[2:].numel(), groups
    return torch.ops.aten.native_group_norm_backward(  # type: ignore[no-any-return]
        s, x, mean, rstd, weight, *size, [True, False, False]
    )[0].to(grad.dtype)


def _statistics(x: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and reciprocal standard deviation, (B, G, 1, 1, 1) float32."""
    var, mean = torch.var_mean(
        x.float().unflatten(1, (groups, -1)), (2, 3, 4), correction=0, keepdim=True
    )
    return mean, (var + eps).rsqrt()


def norm_forward(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> Tensor:
    """:class:`GroupNorm` in elementary operations, float32 inside: what ``fused`` compiles."""
    mean, rstd = _statistics(x, groups, eps)
    x_hat = ((x.float().unflatten(1, (groups, -1)) - mean) * rstd).flatten(1, 2)
    y = x_hat * weight[:, None, None] + bias[:, None, None]
    return (F.silu(y) if silu else y).to(x.dtype)


def norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> Tensor:
    """Gradient of :func:`norm_forward` towards ``x``.

    With ``s`` the gradient before SiLU and ``<>`` the mean over a group: ``rstd (w s - <w s> -
    x_hat <w s x_hat>)``.
    """
    mean, rstd = _statistics(x, groups, eps)
    x_hat = (x.float().unflatten(1, (groups, -1)) - mean) * rstd
    s = grad.float()
    if silu:
        y = x_hat.flatten(1, 2) * weight[:, None, None] + bias[:, None, None]
        gate = y.sigmoid()
        s = s * gate * (1 + y * (1 - gate))
    s = (s * weight[:, None, None]).unflatten(1, (groups, -1))
    over = (2, 3, 4)
    dx: Tensor = rstd * (
        s - s.mean(over, keepdim=True) - x_hat * (s * x_hat).mean(over, keepdim=True)
    )
    return dx.flatten(1, 2).to(grad.dtype)


@cache
def _compiled(function: Callable[..., Tensor], *settings: Any) -> Callable[..., Tensor]:
    """``function`` with its settings fixed, compiled once for all shapes."""
    return torch.compile(lambda *tensors: function(*tensors, *settings), dynamic=True)
