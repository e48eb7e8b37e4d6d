"""A problem small enough to enumerate: exact masked prior, linear-Gaussian measurement, exact
posterior.

Four tokens with four codes give 256 pictures, so every quantity that a sampler approximates can be
computed. Tests and ``research/toy_posterior`` compare against it. S is the number of pictures.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from aps_core.objectives.measurement import MeasurementObjective
from aps_core.operators import Bound
from aps_core.tokenizers.quantizers import LookupFreeQuantizer
from aps_core.types import MASK, Grid

GRID: Grid = (2, 2)
BITS = 2
LENGTH, CODES = GRID[0] * GRID[1], 2**BITS


class ToyTokenizer:
    """Codes of two signs with a linear decoder, one pixel per token. Implements
    :class:`aps_core.types.Tokenizer`.
    """

    stride = 1

    def __init__(self, generator: Generator) -> None:
        self.quantizer = LookupFreeQuantizer(BITS)
        self.codebook_KD = self.quantizer.codebook_KD
        self.colours_D3 = torch.randn(BITS, 3, generator=generator) / 2

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Nearest codes (...) of embeddings (..., D), and their embeddings."""
        return self.quantizer(e)

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Pictures (B, 3, gh, gw)."""
        x_BCHW: Tensor = (e_BLD @ self.colours_D3).mT.unflatten(2, grid)
        return x_BCHW

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Least-squares inverse of the decoder."""
        return torch.einsum("cd,bchw->bdhw", torch.linalg.pinv(self.colours_D3), x_BCHW)

    def feature_maps(self, x_BCHW: Tensor) -> list[Tensor]:
        """The latents alone."""
        return [self.features(x_BCHW)]

    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Codes (B, L)."""
        return self.quantize(self.features(x_BCHW).flatten(2).transpose(1, 2))[0]


class ToyPrior:
    """Exact conditionals of a joint distribution with dependent tokens. Implements
    :class:`aps_core.types.Prior`.
    """

    def __init__(self, seed: int = 0, coupling: float = 0.8) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokenizer = ToyTokenizer(generator)
        self.states_SL = torch.cartesian_prod(*[torch.arange(CODES)] * LENGTH)
        self.one_hot_SLK = torch.nn.functional.one_hot(self.states_SL, CODES).float()
        alone_LK = torch.randn(LENGTH, CODES, generator=generator) / 2
        pairs = coupling * torch.randn(LENGTH, CODES, LENGTH, CODES, generator=generator)
        energy_S = (
            torch.einsum("slk,lk->s", self.one_hot_SLK, alone_LK)
            + torch.einsum("slk,lkmj,smj->s", self.one_hot_SLK, pairs, self.one_hot_SLK) / 2
        )
        self.p_S = energy_S.softmax(0)

        partial_PL = torch.cartesian_prod(*[torch.arange(MASK, CODES)] * LENGTH)
        differs_PSL = (partial_PL[:, None] != MASK) & (partial_PL[:, None] != self.states_SL)
        others_PS1 = differs_PSL.sum(-1, keepdim=True)
        # equal, except possibly at the token itself
        weight_PSL = (others_PS1 == differs_PSL) * self.p_S[:, None]
        p_PLK = torch.einsum("psl,slk->plk", weight_PSL, self.one_hot_SLK)
        self.logits_PLK = (p_PLK / p_PLK.sum(-1, keepdim=True)).clamp(min=1e-30).log()

    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """log p(token | the other decided codes), (B, L, K), from a table of all P partial
        pictures.
        """
        return self.logits_PLK[_number(z_BL - MASK, CODES + 1)]


class ToyWorld:
    """A prior, a noisy measurement of one picture sampled from it, and the exact posterior."""

    def __init__(self, seed: int = 0, sigma: float = 0.5, measured: int = 4) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.prior = ToyPrior(seed)
        matrix = torch.randn(3 * LENGTH, measured, generator=generator) / LENGTH**0.5
        operator = Bound(lambda x_BCHW: (x_BCHW.flatten(1) @ matrix)[..., None, None])
        self.truth_L = self.prior.states_SL[
            torch.multinomial(self.prior.p_S, 1, generator=generator)[0]
        ]
        clean = operator(self.decode(self.truth_L[None]))[0]
        y_CHW = clean + sigma * torch.randn(clean.shape, generator=generator)
        self.objective = MeasurementObjective(operator, y_CHW, sigma, "l2")
        self.posterior_S = (
            self.prior.p_S.log() + self.log_likelihood(self.prior.states_SL)
        ).softmax(0)

    def decode(self, z_BL: Tensor) -> Tensor:
        """Pictures of complete tokens."""
        return self.prior.tokenizer.decode(self.prior.tokenizer.codebook_KD[z_BL], GRID)

    def log_likelihood(self, z_BL: Tensor) -> Tensor:
        """log q(y | tokens), (B,), up to a constant."""
        return -self.objective(self.decode(z_BL))[0] / self.objective.temperature

    def index(self, z_BL: Tensor) -> Tensor:
        """Index of each picture among the S."""
        return _number(z_BL, CODES)

    def total_variation(self, z_BL: Tensor) -> float:
        """Distance in [0, 1] between the samples' empirical distribution and the exact
        posterior.
        """
        share_S = torch.bincount(self.index(z_BL), minlength=len(self.posterior_S)) / len(z_BL)
        return float((share_S - self.posterior_S).abs().sum()) / 2


def _number(digits_BL: Tensor, base: int) -> Tensor:
    """Converts rows of digits to numbers (B,); the last digit is the least significant."""
    place_L: Tensor = base ** torch.arange(digits_BL.shape[1] - 1, -1, -1)
    return (digits_BL * place_L).sum(1)
