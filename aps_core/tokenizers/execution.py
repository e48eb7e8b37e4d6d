"""Execution options of a frozen network. They change speed, memory and floating-point rounding
only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class ExecutionPlan:
    """Options of the decoder's fast path; benchmarks vary them one at a time."""

    lean: bool = True
    """Uses memory-saving backward passes; see :mod:`aps_core.tokenizers.frozen`."""
    channels_last: bool = False
    """Stores activations as (B, H, W, C), which is faster for bfloat16 convolutions."""
    compile: Literal["none", "norms", "decoder"] = "none"
    """What ``torch.compile`` compiles: nothing, the normalisations (once for all sizes), or the
    whole decoder (again for every size).
    """
    recompute: bool = False
    """Stores one tensor per residual block and recomputes the rest in the backward pass, for small
    GPUs.
    """

    @classmethod
    def default(cls, device: torch.device, dtype: torch.dtype) -> ExecutionPlan:
        """The fastest plan known for a device. CUDA uses compilation, with a fallback if it fails;
        see :class:`aps_core.tokenizers.group_norm.FusedNorm`.
        """
        cuda = device.type == "cuda"
        return cls(
            channels_last=cuda or dtype == torch.bfloat16, compile="norms" if cuda else "none"
        )
