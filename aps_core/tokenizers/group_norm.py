"""Group normalisation followed by SiLU, forward and backward: PyTorch's kernels, or formulas for
``torch.compile``.

Shapes: B batch, C channels, G groups, H W pixels, P = H * W pixels in raster order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

logger = logging.getLogger(__name__)

Settings = tuple[int, float, bool]
"""Number of groups, epsilon, and whether SiLU follows."""

CHANNELS_LAST_DEVICES = ("cpu",)
"""Devices whose stock kernels support channels-last memory. CUDA's only support (B, C, H, W): with
other strides, some PyTorch releases reject the forward pass and return wrong gradients.
"""


def _readable(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Converts the tensors to one memory layout supported by the stock kernels of their device."""
    first = tensors[0]
    strided = first.device.type in CHANNELS_LAST_DEVICES and not first.is_contiguous()
    layout = torch.channels_last if strided else torch.contiguous_format
    return tuple(t.contiguous(memory_format=layout) for t in tensors)


def _layout(x_BCHW: Tensor) -> torch.memory_format:
    dense = x_BCHW.is_contiguous() or not x_BCHW.is_contiguous(memory_format=torch.channels_last)
    return torch.contiguous_format if dense else torch.channels_last


def _stock_norm(
    x_BCHW: Tensor, weight_C: Tensor, bias_C: Tensor, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised picture, and mean and reciprocal deviation (B, G). The layout of ``x`` must be
    supported.
    """
    if _emulated(x_BCHW):
        # Float32 weights give float32 statistics of a bfloat16 input; CUDA's kernel takes one
        # dtype only.
        weight_C, bias_C = weight_C.float(), bias_C.float()
    return torch.native_group_norm(x_BCHW, weight_C, bias_C, *_size(x_BCHW), groups, eps)


def _emulated(x_BCHW: Tensor) -> bool:
    return x_BCHW.device.type == "cpu" and x_BCHW.dtype == torch.bfloat16


def _size(x_BCHW: Tensor) -> tuple[int, int, int]:
    return len(x_BCHW), x_BCHW.shape[1], x_BCHW.shape[2:].numel()


def stock_forward(x_BCHW: Tensor, weight_C: Tensor, bias_C: Tensor, settings: Settings) -> Tensor:
    """PyTorch's kernels; the result has the input's memory layout."""
    groups, eps, silu = settings
    (x_read,) = _readable(x_BCHW)
    y_BCHW = _stock_norm(x_read, weight_C, bias_C, groups, eps)[0]
    if silu:
        F.silu(y_BCHW, inplace=True)
    return y_BCHW.contiguous(memory_format=_layout(x_BCHW))


def stock_backward(
    grad_BCHW: Tensor, x_BCHW: Tensor, weight_C: Tensor, bias_C: Tensor, settings: Settings
) -> Tensor:
    """Gradient by PyTorch's kernels. Recomputing the normalisation costs less than storing the
    forward result.
    """
    groups, eps, silu = settings
    x_read, s_BCHW = _readable(x_BCHW, grad_BCHW)
    y_BCHW, mean_BG, rstd_BG = _stock_norm(x_read, weight_C, bias_C, groups, eps)
    if silu:
        s_BCHW = torch.ops.aten.silu_backward(s_BCHW, y_BCHW)
    if _emulated(x_BCHW):
        # In bfloat16 and channels-last this kernel is nine times slower than in float32.
        s_BCHW, x_read, weight_C = s_BCHW.float(), x_read.float(), weight_C.float()
    dx_BCHW: Tensor = torch.ops.aten.native_group_norm_backward(
        s_BCHW, x_read, mean_BG, rstd_BG, weight_C, *_size(x_read), groups, [True, False, False]
    )[0]
    return dx_BCHW.to(grad_BCHW.dtype, memory_format=_layout(x_BCHW))


def _statistics(x_BPC: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and reciprocal standard deviation, (B, 1, G, 1) float32."""
    var, mean = torch.var_mean(
        x_BPC.float().unflatten(2, (groups, -1)), (1, 3), correction=0, keepdim=True
    )
    return mean, (var + eps).rsqrt()


def norm_forward(x_BPC: Tensor, weight_C: Tensor, bias_C: Tensor, settings: Settings) -> Tensor:
    """Normalisation and SiLU in elementary operations, computed in float32."""
    groups, eps, silu = settings
    mean, rstd = _statistics(x_BPC, groups, eps)
    x_hat_BPC = ((x_BPC.float().unflatten(2, (groups, -1)) - mean) * rstd).flatten(2)
    y_BPC = x_hat_BPC * weight_C + bias_C
    return (F.silu(y_BPC) if silu else y_BPC).to(x_BPC.dtype)


def norm_backward(
    grad_BPC: Tensor, x_BPC: Tensor, weight_C: Tensor, bias_C: Tensor, settings: Settings
) -> Tensor:
    """Gradient of :func:`norm_forward` with respect to ``x``.

    With ``s`` the gradient before SiLU and ``<>`` the mean over a group: ``rstd (w s - <w s> -
    x_hat <w s x_hat>)``.
    """
    groups, eps, silu = settings
    mean, rstd = _statistics(x_BPC, groups, eps)
    x_hat = (x_BPC.float().unflatten(2, (groups, -1)) - mean) * rstd
    s_BPC = grad_BPC.float()
    if silu:
        y_BPC = x_hat.flatten(2) * weight_C + bias_C
        gate_BPC = y_BPC.sigmoid()
        s_BPC = s_BPC * gate_BPC * (1 + y_BPC * (1 - gate_BPC))
    s = (s_BPC * weight_C).unflatten(2, (groups, -1))
    over = (1, 3)
    dx: Tensor = rstd * (
        s - s.mean(over, keepdim=True) - x_hat * (s * x_hat).mean(over, keepdim=True)
    )
    return dx.flatten(2).to(grad_BPC.dtype)


class FusedNorm:
    """Compiled normalisations of one network. Each direction is a reduction and a pointwise pass
    over channels-last memory.

    Every direction, setting and number of channels is compiled from its own code object. Dynamo
    counts recompilations per code object and stops compiling at eight. Batch and pixels are
    dynamic: one graph covers single pictures of any size, another any batch.

    If compilation fails (no C compiler, no Python headers, a cache folder mounted ``noexec``), the
    stock kernels are used after one warning, and ``failure`` contains the reason.
    """

    def __init__(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """``backend`` is passed to ``torch.compile``."""
        self.backend = backend
        self.failure: str | None = None
        self._compiled: dict[Any, Callable[..., Tensor]] = {}

    def forward(
        self, x_BCHW: Tensor, weight_C: Tensor, bias_C: Tensor, settings: Settings
    ) -> Tensor:
        """Normalised, (B, C, H, W) in channels-last memory."""
        y_BCHW = self._try(norm_forward, (x_BCHW,), (weight_C, bias_C), settings)
        return stock_forward(x_BCHW, weight_C, bias_C, settings) if y_BCHW is None else y_BCHW

    def backward(
        self,
        grad_BCHW: Tensor,
        x_BCHW: Tensor,
        weight_C: Tensor,
        bias_C: Tensor,
        settings: Settings,
    ) -> Tensor:
        """Gradient towards ``x``, (B, C, H, W) in channels-last memory."""
        dx_BCHW = self._try(norm_backward, (grad_BCHW, x_BCHW), (weight_C, bias_C), settings)
        if dx_BCHW is None:
            return stock_backward(grad_BCHW, x_BCHW, weight_C, bias_C, settings)
        return dx_BCHW

    def _try(
        self,
        function: Callable[..., Tensor],
        pictures: tuple[Tensor, ...],
        parameters: tuple[Tensor, Tensor],
        settings: Settings,
    ) -> Tensor | None:
        """Result of the compiled function; None if compilation has failed."""
        if self.failure is not None:
            return None
        height, width = pictures[0].shape[2:]
        rows = [picture.permute(0, 2, 3, 1).flatten(1, 2).contiguous() for picture in pictures]
        for row_BPC in rows:
            torch._dynamo.maybe_mark_dynamic(row_BPC, 0)
            torch._dynamo.maybe_mark_dynamic(row_BPC, 1)
        try:
            y_BPC = self._function(function, len(parameters[0]), settings)(*rows, *parameters)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise  # an error of the device, not of the compiler
        except Exception as error:  # noqa: BLE001 - compilers fail in many ways, each is logged
            self._give_up(error)
            return None
        y_BCHW: Tensor = y_BPC.unflatten(1, (height, width)).permute(0, 3, 1, 2)
        return y_BCHW

    def _function(
        self, function: Callable[..., Tensor], channels: int, settings: Settings
    ) -> Callable[..., Tensor]:
        key = function, channels, settings
        if key not in self._compiled:

            def fixed(*tensors: Tensor) -> Tensor:
                return function(*tensors, settings)

            own = fixed.__code__.replace(co_name=f"{function.__name__}_{channels}")
            self._compiled[key] = torch.compile(
                FunctionType(own, globals(), own.co_name, None, fixed.__closure__),
                dynamic=False,
                backend=self.backend,
            )
        return self._compiled[key]

    def _give_up(self, error: Exception) -> None:
        cause = getattr(error, "inner_exception", error)
        lines = [line for line in str(cause).splitlines() if line.strip()]
        self.failure = f"{type(cause).__name__}: {lines[0] if lines else 'no message'}"
        logger.warning(
            "The normalisations cannot be compiled and run on PyTorch's own kernels, which is"
            " slower: %s",
            self.failure,
        )
        logger.debug("Why compiling failed", exc_info=error)
