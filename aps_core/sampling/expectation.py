"""The expected code of a token, with hand-written gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

LEAST_LOG_P = -60.0
"""Keeps products of probabilities and factors above the smallest float32."""


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


class Tilt:
    """``softmax(log p + u . code)`` for fixed p (N, K) and changing u (N, D).

    If the codes are all sign patterns of D bits, as in lookup-free quantization, ``exp(u . code)``
    is the outer product of a factor per first half of the bits and one per second half. With p as
    a matrix (N, K1, K2), expectation and gradient are products of this matrix with vectors: four
    passes over it, no exponential of the whole table, and none for automatic differentiation.
    """

    def __init__(self, log_p_NK: Tensor, codebook_KD: Tensor) -> None:
        """
        Args:
            log_p_NK: normalised log-probabilities.
            codebook_KD: embedding of every code.
        """
        self.log_p_NK = log_p_NK
        self.codebook_KD = codebook_KD
        self.halves = _halves(codebook_KD)
        if self.halves is not None:
            shape = len(log_p_NK), len(self.halves[0]), len(self.halves[1])
            self.p_NIJ = log_p_NK.clamp(min=LEAST_LOG_P).exp().view(shape)

    def logits(self, u_ND: Tensor) -> Tensor:
        """``log p + u . code`` (N, K)."""
        return self.log_p_NK + u_ND @ self.codebook_KD.T

    def expected_code(self, u_ND: Tensor) -> Tensor:
        """Expected code (N, D); differentiable once with respect to u."""
        if self.halves is None:
            return expected_code(self.logits(u_ND), self.codebook_KD)
        return _TiltedCode.apply(u_ND, self.p_NIJ, *self.halves)  # type: ignore[no-any-return]


def _halves(codebook_KD: Tensor) -> tuple[Tensor, Tensor] | None:
    """Codebooks (K1, D1) and (K2, D2) whose pairs are the codes, in order; None without such."""
    codes, bits = codebook_KD.shape
    if bits < 2 or codes != 2**bits:
        return None
    second = 2 ** (bits - bits // 2)
    first_IF, second_JS = codebook_KD[::second, : bits // 2], codebook_KD[:second, bits // 2 :]
    pairs_KD = torch.cat(
        [first_IF.repeat_interleave(second, 0), second_JS.repeat(codes // second, 1)], dim=1
    )
    if not torch.equal(pairs_KD, codebook_KD):
        return None
    return first_IF.contiguous(), second_JS.contiguous()


class _TiltedCode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u_ND: Tensor, p_NIJ: Tensor, first_IF: Tensor, second_JS: Tensor
    ) -> Tensor:
        bits = first_IF.shape[1]
        i_NI, j_NJ = _factors(u_ND[:, :bits], first_IF), _factors(u_ND[:, bits:], second_JS)
        pj_NI, pi_NJ = _times(p_NIJ, j_NJ), _times(p_NIJ.mT, i_NI)
        total_N1 = (i_NI * pj_NI).sum(1, keepdim=True)
        x_bar_ND = torch.cat([(i_NI * pj_NI) @ first_IF, (j_NJ * pi_NJ) @ second_JS], 1) / total_N1
        saved = p_NIJ, first_IF, second_JS, i_NI, j_NJ, pj_NI, pi_NJ, total_N1, x_bar_ND
        ctx.save_for_backward(*saved)
        return x_bar_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_ND: Tensor) -> tuple[Tensor, None, None, None]:
        """``cov(code) g``: how the expectation changes if u moves along g."""
        p_NIJ, first_IF, second_JS, i_NI, j_NJ, pj_NI, pi_NJ, total_N1, x_bar_ND = ctx.saved_tensors
        bits = first_IF.shape[1]
        di_NI = i_NI * (g_ND[:, :bits] @ first_IF.T)
        dj_NJ = j_NJ * (g_ND[:, bits:] @ second_JS.T)
        first_NI = di_NI * pj_NI + i_NI * _times(p_NIJ, dj_NJ)
        second_NJ = dj_NJ * pi_NJ + j_NJ * _times(p_NIJ.mT, di_NI)
        moved_ND = torch.cat([first_NI @ first_IF, second_NJ @ second_JS], 1)
        return (moved_ND - x_bar_ND * first_NI.sum(1, keepdim=True)) / total_N1, None, None, None


def _factors(u_ND: Tensor, codebook_KD: Tensor) -> Tensor:
    """``exp(u . code)`` (N, K) up to a constant of the row."""
    exponent_NK = u_ND @ codebook_KD.T
    return (exponent_NK - exponent_NK.amax(1, keepdim=True)).exp()


def _times(p_NIJ: Tensor, v_NJ: Tensor) -> Tensor:
    """The product (N, I) of every matrix with its vector."""
    return torch.bmm(p_NIJ, v_NJ[..., None])[..., 0]
