"""The expected code of a token, with a hand-written gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def expected_code(phi_NK: Tensor, codebook_KD: Tensor) -> Tensor:
    """``softmax(phi) @ codebook`` (N, D), lines 8-9 of Algorithm 1.

    The gradient ``dphi_k = p_k (g . c_k - g . x_bar)`` needs one matrix product and one pass over
    the (N, K) table. Automatic differentiation needs another reduction and two more tables.

    Args:
        phi_NK: logits of the masked tokens.
        codebook_KD: embedding of every code.
    """
    return _ExpectedCode.apply(phi_NK, codebook_KD)  # type: ignore[no-any-return]


class _ExpectedCode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, phi_NK: Tensor, codebook_KD: Tensor) -> Tensor:
        p_NK = torch.softmax(phi_NK, dim=-1)
        x_bar_ND = p_NK @ codebook_KD
        ctx.save_for_backward(p_NK, codebook_KD, x_bar_ND)
        return x_bar_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_ND: Tensor) -> tuple[Tensor, None]:
        p_NK, codebook_KD, x_bar_ND = ctx.saved_tensors
        # the second term is one more dimension of the product, in which every code is 1
        both_NE = torch.cat([g_ND, -(g_ND * x_bar_ND).sum(-1, keepdim=True)], dim=1)
        return (both_NE @ F.pad(codebook_KD, (0, 1), value=1.0).T).mul_(p_NK), None
