"""MMaDA's cosine mask schedule (MaskGIT): how many tokens stay masked after each reverse step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_import("torch")


def mask_fraction(progress: float) -> float:
    """Masked share ``1 - alpha`` in [0, 1] after the fraction ``progress`` in [0, 1] of the reverse
    steps.
    """
    return float(torch.cos(torch.tensor(progress, dtype=torch.float32) * (torch.pi / 2)))


def masked_counts(num_tokens: int, steps: int) -> list[int]:
    """Number of masked tokens after each of ``steps`` reverse steps; 0 after the last.

    The product is computed in float32 as in MMaDA (two thirds of 1024 tokens rounds down to 511).
    MMaDA clamps the last count to 1 but returns all codes sampled in that step, which is equivalent
    to 0.
    """
    progress = torch.arange(1, steps + 1, dtype=torch.float32) / steps
    counts = (num_tokens * torch.cos(progress * (torch.pi / 2))).floor().long().tolist()
    left, result = num_tokens, []
    for count in counts[:-1]:
        left = max(min(count, left - 1), 1 if left > 1 else 0)
        result.append(left)
    return [*result, 0]
