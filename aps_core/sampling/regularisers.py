"""Optional loss terms that Algorithm 1 leaves out: the prior term of Eq. (qe) and the entropy of
the tokens.
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
    """Weighted sum of both terms over the rows where ``counted`` is true.

    Args:
        phi_NK: optimised logits.
        prior_NK: the prior's probabilities; None omits the prior term.
        prior_weight: weight of the prior term, scalar.
        entropy_weight: weight of the entropy, in loss per nat.
        counted_N: boolean; rows of decided tokens are False.
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
