"""Quantizers: lookup-free (sign of every dimension, Eq. lfq) and vector (nearest code, Eq.
vec-quant).
"""

from __future__ import annotations

import torch
from torch import Tensor


class LookupFreeQuantizer:
    """Codes are the signs of ``bits`` dimensions, as a binary number with the first dimension most
    significant.

    ``codebook_KD`` (2**bits, bits) holds all sign patterns; row k encodes k in {-1, +1}.
    """

    def __init__(self, bits: int, device: torch.device | str = "cpu") -> None:
        self.powers_D = 2 ** torch.arange(bits - 1, -1, -1, device=device)
        codes_K = torch.arange(2**bits, device=device)
        self.codebook_KD = torch.where((codes_K[:, None] & self.powers_D) > 0, 1.0, -1.0)

    def __call__(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (..., D) to codes (...) and embeddings in {-1, +1}; zero counts as -1."""
        positive = e > 0
        return (positive * self.powers_D).sum(-1), torch.where(positive, 1.0, -1.0).to(e.dtype)


class VectorQuantizer:
    """Codes are the nearest rows of a learned codebook (K, D) in Euclidean distance."""

    def __init__(self, codebook_KD: Tensor) -> None:
        self.codebook_KD = codebook_KD

    def __call__(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (..., D) to nearest codes (...) and their codebook rows (..., D)."""
        flat = e.reshape(-1, e.shape[-1])
        # |e - c|^2 without the constant |e|^2
        codes = (self.codebook_KD.square().sum(1) - 2 * flat @ self.codebook_KD.T).argmin(-1)
        return codes.reshape(e.shape[:-1]), self.codebook_KD[codes].reshape(e.shape)
