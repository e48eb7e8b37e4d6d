"""Scores of the convolutional prior on withheld pictures, and what its loss shares with them."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from aps_core.evaluation.metrics import psnr
from aps_core.priors.convolutional.network import Answer, ConvolutionalNet
from aps_core.tokenizers.pixels import PixelTokenizer, brightness, of_codes
from aps_core.types import MASK, Grid
from training.measurement_kinds import Kinds
from training.restoration import Restorations

CASES = {
    "all": (False, 1.0),
    "half": (False, 0.5),
    "quarter": (False, 0.25),
    "denoised_all": (True, 1.0),
    "denoised_half": (True, 0.5),
}
"""Of validation: whether the prior is given the first estimates, and the share of masked tokens.
What ``denoised_half`` gains on ``denoised_all`` is what decided neighbours say beyond a
measurement.
"""


def surprise(
    said: Answer, x_BCHW: Tensor, given_B: Tensor, tokenizer: PixelTokenizer, continuous: bool
) -> Tensor:
    """Nats (B, L) of the true tokens of pictures. If an estimate is given, of their brightness
    alone, because colours are then not predicted; from a ``continuous`` network, under a normal
    distribution.
    """
    codes_BL, given_B1 = tokenizer.encode(x_BCHW), given_B[:, None]
    brightness_BL = F.cross_entropy(said.y_BLY.mT, codes_BL // 4, reduction="none")
    if continuous:
        square_BL = (brightness(x_BCHW).flatten(1) - said.mean_BL).square()
        density_BL = (square_BL / said.variance_BL + (2 * math.pi * said.variance_BL).log()) / 2
        level = float(tokenizer.levels_Y[1] - tokenizer.levels_Y[0])
        brightness_BL = (density_BL - math.log(level)).where(given_B1, brightness_BL)
    colour_BL = F.cross_entropy(said.colour_BL4.mT, codes_BL % 4, reduction="none")
    nats_BL: Tensor = brightness_BL + colour_BL * ~given_B1
    return nats_BL


def expected(said: Answer, z_BL: Tensor, alone: Tensor, tokenizer: PixelTokenizer) -> Tensor:
    """Expected pictures: estimates with corrected colours; of those with the numbers ``alone``,
    which have no estimate, decided and predicted tokens (Eq. 7).
    """
    grid = (said.colours_BCHW.shape[2], said.colours_BCHW.shape[3])
    x_bar_BCHW: Tensor = said.mean_BL.unflatten(1, grid)[:, None] + said.colours_BCHW
    if not len(alone):
        return x_bar_BCHW
    z_bL, codebook_KD = z_BL[alone], tokenizer.codebook_KD
    p_bLK = of_codes(said.y_BLY[alone], said.colour_BL4[alone]).softmax(-1)
    decided_bL1 = (z_bL != MASK)[..., None]
    e_bLD = codebook_KD[z_bL.clamp(min=0)].where(decided_bL1, p_bLK @ codebook_KD)
    return x_bar_BCHW.index_put((alone,), tokenizer.decode(e_bLD, grid))


def squared_error(x_BCHW: Tensor, truth_BCHW: Tensor) -> Tensor:
    """Mean of every picture (B,)."""
    return (x_BCHW - truth_BCHW).square().flatten(1).mean(1)


@torch.no_grad()
def validate(
    net: nn.Module, tokenizer: PixelTokenizer, x_BCHW: Tensor, rounds: int, kinds: Kinds
) -> dict[str, float]:
    """Scores on withheld pictures: cross-entropy of the undecided tokens, with a share of them
    decided, and with or without a first estimate; PSNR of the tokens, of first estimates, and after
    a restoration of some rounds.
    """
    assert isinstance(net, ConvolutionalNet)
    generator = Generator().manual_seed(0)
    parts: dict[str, list[Tensor]] = defaultdict(list)
    counts, start = kinds.counts(len(x_BCHW)), 0
    for factor, count in counts.items():
        x = x_BCHW[start : start + count]
        start += count
        if not len(x):
            continue
        grid = (x.shape[2], x.shape[3])
        restorations = Restorations.of(x, factor, generator, kinds)
        codes_BL = tokenizer.encode(x)
        order_BL = torch.rand(codes_BL.shape, generator=generator).to(codes_BL.device)

        def answer(z_BL: Tensor, given_B: Tensor, of: Restorations, grid: Grid) -> Answer:
            seen = of.estimate_BCHW, of.pulled_BCHW
            return net.answer(z_BL, *seen, given_B, tokenizer, grid)

        for name, (given, share) in CASES.items():
            masked_BL = order_BL < share
            z_BL = torch.where(masked_BL, MASK, codes_BL)
            given_B = torch.full((len(x),), given, device=x.device)
            said = answer(z_BL, given_B, restorations, grid)
            nats_BL = surprise(said, x, given_B, tokenizer, net.config.continuous)
            parts[f"nll_{name}"].append(nats_BL[masked_BL])
        tokens_BCHW = tokenizer.decode(tokenizer.codebook_KD[codes_BL], grid)
        parts["psnr_tokens"].append(psnr(tokens_BCHW.clamp(-1, 1), x))
        parts["psnr_first"].append(psnr(restorations.estimate_BCHW, x))
        nothing_BL, all_B = torch.full_like(codes_BL, MASK), torch.ones_like(given_B)
        none = codes_BL.new_zeros(0)
        while restorations.rounds < rounds:
            said = answer(nothing_BL, all_B, restorations, grid)
            x_bar_BCHW = expected(said, nothing_BL, none, tokenizer)
            fitted_BCHW = restorations.fitted(x_bar_BCHW, said.weight_BL / said.variance_BL)
            restorations.advance(fitted_BCHW, torch.zeros_like(fitted_BCHW[:, 0]))
        parts["psnr_restored"].append(psnr(fitted_BCHW.clamp(-1, 1), x))
    return {name: torch.cat(values).mean().item() for name, values in parts.items()}
