"""How a frozen network is executed. A plan changes speed and memory, and results by floating-point
rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class ExecutionPlan:
    """Switches of the decoder's fast path; benchmarks turn them one by one."""

    lean: bool = True
    """Backward passes that keep little: see :mod:`aps_core.tokenizers.frozen`."""
    channels_last: bool = False
    """Layout (B, H, W, C) in memory, which bfloat16 convolutions prefer."""
    compile: Literal["none", "norms", "decoder"] = "none"
    """What ``torch.compile`` fuses: nothing, the normalisations (once for all sizes), or the whole
    decoder (anew for every size).
    """
    recompute: bool = False
    """Keeps one tensor a residual block and computes the rest again in the backward pass: for cards
    that are too small.
    """

    @classmethod
    def default(cls, device: torch.device, dtype: torch.dtype) -> ExecutionPlan:
        """The fastest plan known for a device. On CUDA it compiles; a machine that cannot compile
        falls back, see :class:`aps_core.tokenizers.group_norm.FusedNorm`.
        """
        cuda = device.type == "cuda"
        return cls(
            channels_last=cuda or dtype == torch.bfloat16, compile="norms" if cuda else "none"
        )
