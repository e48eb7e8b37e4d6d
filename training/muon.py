"""Muon for hidden weights, AdamW for all other parameters."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from aps_core.runtime.precision import fast_dtype

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan et al. 2024), which takes singular values to about 1."""
ITERATIONS = 5


class HiddenMuon(torch.optim.Optimizer):
    """Muon for weights of two or more dimensions (Jordan et al. 2024), with AdamW-like rates.

    Convolution weights are matrices (out, in * kh * kw). The state is that of
    ``torch.optim.Muon``, which computes in bfloat16: a CPU that must emulate it takes longer for
    this than for all the rest of a step. Here such a CPU computes in float32. Weights of one shape
    are updated together: a GPU waits less for launches.
    """

    def __init__(
        self, weights: Iterable[nn.Parameter], lr: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(list(weights), {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[weight.flatten(1).shape].append(weight)
            for shape, weights in alike.items():
                # root mean square of an entry like AdamW's (Liu et al. 2025)
                rate = group["lr"] * 0.2 * math.sqrt(max(shape))
                updates_NOI = orthogonal(torch.stack([self._momentum(w) for w in weights]))
                for weight, update_OI in zip(weights, updates_NOI, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update_OI.view_as(weight), alpha=-rate)

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        """Nesterov's, after this step's gradient (O, I)."""
        assert weight.grad is not None
        gradient_OI, state = weight.grad.flatten(1), self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient_OI)
        buffer_OI: Tensor = state["momentum_buffer"].lerp_(gradient_OI, 1 - MOMENTUM)
        return gradient_OI.lerp(buffer_OI, MOMENTUM)


def orthogonal(m_NOI: Tensor) -> Tensor:
    """Matrices with their singular values replaced by about 1 (0.7 to 1.2)."""
    a, b, c = COEFFICIENTS
    x = m_NOI.to(fast_dtype(m_NOI.device))
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(m_NOI.dtype)


def muon_and_adamw(
    model: nn.Module, hidden: Iterable[nn.Parameter], lr: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Creates Muon for the ``hidden`` parameters and fused AdamW for the others."""
    hidden = list(hidden)
    chosen = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in chosen]
    return [
        HiddenMuon(hidden, lr, weight_decay),
        torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay, fused=True),
    ]
