"""Ranking of the anchors: confidence scores and noise on their order."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from aps_core.sampling.random_ops import gumbel_perturbed
from aps_core.sampling.settings import AnchorSettings


def token_score(logits_NK: Tensor, x_N: Tensor, kind: str) -> Tensor:
    """Confidence (N,) of tokens ``x`` under softmax(logits); larger is better.

    ``confidence`` is the log-odds of the paper's ``kappa = <softmax, x>``. Log-odds give the same
    order, but probabilities saturate at 1 in float32 after a long optimisation, which would make
    the order arbitrary.

    Args:
        logits_NK: logits of the masked tokens.
        x_N: their codes.
        kind: 'confidence', 'margin' (to the second code) or 'entropy' (negative).
    """
    if kind == "entropy":
        log_p_NK = torch.log_softmax(logits_NK, dim=-1)
        return (log_p_NK.exp() * log_p_NK).sum(-1)
    chosen_N = logits_NK.gather(-1, x_N[:, None])[:, 0]
    others_NK = logits_NK.scatter(-1, x_N[:, None], -torch.inf)
    rival_N = others_NK.logsumexp(-1) if kind == "confidence" else others_NK.amax(-1)
    return chosen_N - rival_N


def anchor_order(
    kappa_BL: Tensor, masked_BL: Tensor, config: AnchorSettings, generator: Generator
) -> Tensor:
    """Ranking values (B, L) of the masked tokens, -inf where decided.

    Confidence scores, or uniform random numbers for the random-order control; with Gumbel noise if
    ``config.anchor_temperature`` is positive.
    """
    if config.remasking == "random":
        chance_N = torch.rand(int(masked_BL.sum()), generator=generator, device=kappa_BL.device)
        kappa_BL = kappa_BL.masked_scatter(masked_BL, chance_N)
    if not config.anchor_temperature:
        return kappa_BL
    return gumbel_perturbed(standardised(kappa_BL, masked_BL), config.anchor_temperature, generator)


def standardised(kappa_BL: Tensor, masked_BL: Tensor) -> Tensor:
    """Scores normalised to mean 0 and standard deviation 1 over each sample's masked tokens; -inf
    stays where decided.
    """
    count_B1 = masked_BL.sum(1, keepdim=True).clamp(min=1)
    centred_BL = kappa_BL - kappa_BL.masked_fill(~masked_BL, 0).sum(1, keepdim=True) / count_B1
    variance_B1 = centred_BL.masked_fill(~masked_BL, 0).square().sum(1, keepdim=True) / count_B1
    return centred_BL / variance_B1.sqrt().clamp(min=1e-12)
