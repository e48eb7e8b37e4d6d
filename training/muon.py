"""Muon for hidden weights, AdamW for all other parameters.

``torch.optim.Muon`` accepts matrices only. Convolution weights are passed to it as views of shape
(out, in * kh * kw) that share their storage.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class HiddenMuon(torch.optim.Muon):
    """Muon for weights of two or more dimensions (Jordan et al. 2024), with AdamW-like rates."""

    def __init__(
        self, weights: Iterable[nn.Parameter], lr: float, weight_decay: float = 0.0
    ) -> None:
        self._weights = list(weights)
        self._matrices = [nn.Parameter(w.data.flatten(1)) for w in self._weights]
        super().__init__(
            self._matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
        )

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for weight, matrix in zip(self._weights, self._matrices, strict=True):
            matrix.grad = weight.grad.flatten(1) if weight.grad is not None else None
        super().step(closure)


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
