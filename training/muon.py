"""Muon for the hidden weights, AdamW for everything else.

``torch.optim.Muon`` takes matrices only; a convolution's weight is seen by it as the matrix
(out, in * kh * kw), through an alias that shares its storage.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class HiddenMuon(torch.optim.Muon):
    """Muon over weights of two or more dimensions (Jordan et al. 2024), rates on AdamW's scale."""

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
    """Muon for ``hidden``, fused AdamW for the rest of the model's parameters."""
    hidden = list(hidden)
    chosen = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        HiddenMuon(hidden, lr, weight_decay),
        torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay, fused=True),
    ]
