"""The number format in which a device computes networks fastest."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_import("torch")

WORTHWHILE = 1.2
"""Least speed-up of products: converting to and from bfloat16 costs time."""
TRIALS = 9


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU; on a CPU, bfloat16 if it multiplies faster than float32.

    The instructions alone do not say so: bfloat16 is about twice as fast on AMD's AVX-512 and many
    times as fast with AMX, but slower on Intel's AVX-512 without AMX, and emulated elsewhere. A
    short product is therefore timed once per process; both cases are far from the threshold.
    """
    if device.type != "cpu":
        return torch.bfloat16
    return torch.bfloat16 if _speed_up() > WORTHWHILE else torch.float32


@cache
def _speed_up() -> float:
    """Time of a product in float32 over that in bfloat16; 0 where the CPU emulates bfloat16."""
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return 0.0
    return _seconds(torch.float32) / _seconds(torch.bfloat16)


def _seconds(dtype: torch.dtype) -> float:
    """Shortest of some trials, which other programs disturb least."""
    x, weight = torch.ones(1024, 192, dtype=dtype), torch.ones(576, 192, dtype=dtype)
    trials = []
    with torch.inference_mode():
        for _ in range(TRIALS):
            started = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            trials.append(time.perf_counter() - started)
    return min(trials)
