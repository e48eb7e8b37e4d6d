"""Pictures of other sizes than the prior's training size: as one sequence if the prior supports it,
otherwise in overlapping windows of the training size.

Shapes: B samples, L image tokens, K codes, W windows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from aps_core.types import MASK, Grid

WINDOWS_AT_ONCE = 8
"""Windows evaluated by the network in one batch. Limits memory; does not change results."""


def windowed_logits(
    z_BL: Tensor,
    grid: Grid,
    native: Grid,
    codes: int,
    logits: Callable[[Tensor], Tensor],
    whole_tokens: int = 0,
) -> Tensor:
    """The prior's logits (B, L, K) for the tokens of any ``grid``.

    The native grid, and any grid of at most ``whole_tokens`` tokens, is evaluated as one sequence.
    For others, the log-probabilities of overlapping windows are averaged, with mask tokens beyond
    the picture. Window borders move from step to step, because their shift is the number of decided
    tokens.

    Args:
        z_BL: codes, or ``MASK``.
        grid: rows and columns of the tokens.
        native: rows and columns the prior was trained on.
        codes: codebook size K.
        logits: maps tokens (W, native L) to logits (W, native L, K).
        whole_tokens: largest L evaluated as one sequence.
    """
    if grid == native or grid[0] * grid[1] <= whole_tokens:
        return logits(z_BL)
    batch, (gh, gw), (wh, ww) = len(z_BL), grid, native
    padded = torch.nn.functional.pad(
        z_BL.view(batch, gh, gw), (0, max(0, ww - gw), 0, max(0, wh - gh)), value=MASK
    )
    shift = int((z_BL[0] != MASK).sum())
    corners = list(product(window_starts(gh, wh, shift), window_starts(gw, ww, shift)))
    total = torch.zeros(*padded.shape, codes, device=z_BL.device)
    seen = torch.zeros(padded.shape[1:], device=z_BL.device)
    for first in range(0, len(corners), WINDOWS_AT_ONCE):
        some = corners[first : first + WINDOWS_AT_ONCE]
        windows = torch.cat(
            [padded[:, t : t + wh, left : left + ww].reshape(batch, -1) for t, left in some]
        )
        log_p = logits(windows).log_softmax(-1).view(len(some), batch, wh, ww, -1)
        for (t, left), window in zip(some, log_p, strict=True):
            total[:, t : t + wh, left : left + ww] += window
            seen[t : t + wh, left : left + ww] += 1
    return (total / seen[..., None])[:, :gh, :gw].reshape(batch, gh * gw, -1)


def window_starts(length: int, window: int, shift: int) -> list[int]:
    """Start positions of windows that cover ``length`` with at least a quarter overlap. ``shift``
    moves the inner ones.
    """
    stride = window * 3 // 4
    last = max(0, length - window)
    return sorted({min(max(start, 0), last) for start in range(-(shift % stride), length, stride)})
