"""The terms Algorithm 1 leaves out: Eq. (qe)'s agreement with the prior, and the tokens'
entropy.
"""

from __future__ import annotations

import torch
from torch import Tensor


def regularisers(
    phi_NK: Tensor,
    prior_NK: Tensor | None,
    prior_weight: Tensor,
    entropy_weight: float,
    counted_N: Tensor,
) -> Tensor:
    """Their weighted sum over the rows that are counted.

    ``prior_NK`` holds the prior's probabilities, None to leave its term out.
    """
    p_NK = torch.softmax(phi_NK, dim=-1)
    total = phi_NK.new_zeros(())
    if prior_NK is not None:
        agreement_N = (p_NK * prior_NK).sum(-1)
        total = total - prior_weight * (agreement_N.clamp(min=1e-30).log() * counted_N).sum()
    if entropy_weight:
        total = (
            total - entropy_weight * (p_NK * p_NK.clamp(min=1e-30).log() * counted_N[:, None]).sum()
        )
    return total
