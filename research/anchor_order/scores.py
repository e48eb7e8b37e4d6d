"""Scores by which a reverse step of the anchor study orders the masked tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from aps_core.sampling import anchors
from aps_core.types import MASK

Score = Callable[["Step", Tensor], Tensor]
"""Computes anchor scores (N,) of the codes (N,) of the masked tokens in a reverse step."""


@dataclass
class Step:
    """State of a reverse step that is available to a score."""

    phi_NK: Tensor
    prior_NK: Tensor
    z_BL: Tensor
    codebook_KD: Tensor
    history: list[Tensor]
    """Codes (N,) after every inner step."""

    @property
    def places_N2(self) -> Tensor:
        """Row and column of the masked tokens on the (square) grid."""
        side = round(self.z_BL.shape[1] ** 0.5)
        index_N = (self.z_BL == MASK).nonzero()[:, 1]
        return torch.stack([index_N // side, index_N % side], dim=1)


def confidence(step: Step, x_N: Tensor) -> Tensor:
    return anchors.token_score(step.phi_NK, x_N, "confidence")


def margin(step: Step, x_N: Tensor) -> Tensor:
    return anchors.token_score(step.phi_NK, x_N, "margin")


def chance(step: Step, x_N: Tensor) -> Tensor:
    return torch.rand(len(x_N), generator=torch.Generator().manual_seed(len(x_N)))


def bits(step: Step, x_N: Tensor) -> Tensor:
    """Sum of the log-probabilities of the code's bits, which the tokenizer rounds separately."""
    on_ND = torch.softmax(step.phi_NK, -1) @ (step.codebook_KD > 0).float()
    return torch.where(step.codebook_KD[x_N] > 0, on_ND, 1 - on_ND).clamp(min=1e-12).log().sum(-1)


def agreement(step: Step, x_N: Tensor) -> Tensor:
    """Probability under the prior of the code chosen with the measurement."""
    return torch.log_softmax(step.prior_NK, -1).gather(-1, x_N[:, None])[:, 0]


def margin_and_agreement(step: Step, x_N: Tensor) -> Tensor:
    return _standardised(margin(step, x_N)) + _standardised(agreement(step, x_N))


def stability(step: Step, x_N: Tensor) -> Tensor:
    """Share of the inner steps with the same code as at the end; ties are broken by the margin."""
    return torch.stack([(codes_N == x_N).float() for codes_N in step.history]).mean(
        0
    ) + 1e-3 * _standardised(margin(step, x_N))


def spread(step: Step, x_N: Tensor) -> Tensor:
    """Order of a 2-D Halton sequence, which covers the picture evenly; ignores the tokens."""
    side = round(step.z_BL.shape[1] ** 0.5)
    rank_HW = torch.full((side, side), -1)
    number = placed = 0
    while placed < side * side:
        row, column = (
            int(_radical_inverse(number, 2) * side),
            int(_radical_inverse(number, 3) * side),
        )
        if rank_HW[row, column] < 0:
            rank_HW[row, column], placed = placed, placed + 1
        number += 1
    return -rank_HW[step.places_N2[:, 0], step.places_N2[:, 1]].float()


def spread_and_margin(step: Step, x_N: Tensor) -> Tensor:
    """The Halton order, shifted by the margin."""
    return 2 * _standardised(spread(step, x_N)) + _standardised(margin(step, x_N))


def spread_and_confidence(step: Step, x_N: Tensor) -> Tensor:
    """The Halton order, shifted by the confidence."""
    return 2 * _standardised(spread(step, x_N)) + _standardised(confidence(step, x_N))


def spread_margin(step: Step, x_N: Tensor) -> Tensor:
    """First the token of largest margin in each block of 4x4 tokens, then the second, and so on."""
    margin_N, block_N = (
        margin(step, x_N),
        step.places_N2.div(4, rounding_mode="floor") @ torch.tensor([1000, 1]),
    )
    better_NN = (block_N[:, None] == block_N[None]) & (margin_N[None] > margin_N[:, None])
    return -better_NN.sum(1) + 1e-3 * _standardised(margin_N)


def _standardised(x_N: Tensor) -> Tensor:
    return (x_N - x_N.mean()) / x_N.std(correction=0).clamp(min=1e-12)


def _radical_inverse(number: int, base: int) -> float:
    value, share = 0.0, 1.0 / base
    while number:
        value, number, share = value + number % base * share, number // base, share / base
    return value
