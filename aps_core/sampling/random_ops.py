"""Sampling of categorical and Gumbel variables from an explicit generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor
else:
    torch = lazy_import("torch")


def categorical(p_NK: Tensor, generator: Generator) -> Tensor:
    """Samples one code per row (N,) from unnormalised probabilities (N, K). Codes of probability 0
    are never drawn.

    Inverts the cumulative distribution with one uniform number per row. :func:`torch.multinomial`
    needs one per code, which dominates the time of unguided sampling on a CPU.
    """
    below_NK = p_NK.cumsum(-1)
    total_N1 = below_NK[:, -1:]
    uniform_N1 = torch.rand(total_N1.shape, generator=generator, device=p_NK.device) * total_N1
    # rounding may make the product equal to the total
    uniform_N1 = torch.minimum(uniform_N1, total_N1.nextafter(torch.zeros_like(total_N1)))
    return torch.searchsorted(below_NK, uniform_N1, right=True)[:, 0]


def gumbel_perturbed(logits: Tensor, temperature: float, generator: Generator) -> Tensor:
    """Logits (..., K) plus Gumbel noise times ``temperature``. At temperature 1 the argmax is a
    sample from softmax(logits).

    Algorithm 1 itself is deterministic. This noise is what makes several samples differ.
    """
    if temperature == 0:
        return logits
    uniform = torch.rand(logits.shape, generator=generator, device=logits.device)
    return logits - temperature * torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))
