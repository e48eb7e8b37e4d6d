"""The number format in which a device computes networks fastest."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import

if TYPE_CHECKING:
    import torch
else:
    torch = lazy_import("torch")


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 on a GPU; on a CPU, bfloat16 if it multiplies faster than float32.

    The instructions alone do not say so: bfloat16 is about twice as fast on AMD's AVX-512 and many
    times as fast with AMX, but slower on Intel's AVX-512 without AMX, and emulated elsewhere. It is
    not timed: on a busy machine, processes would decide differently, and their results differ.
    """
    if device.type != "cpu" or torch.cpu._is_amx_tile_supported():
        return torch.bfloat16
    fast = torch.cpu._is_avx512_bf16_supported() and _made_by_amd()
    return torch.bfloat16 if fast else torch.float32


@cache
def _made_by_amd() -> bool:
    """Whether the CPU says so; only Linux has the file."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "AuthenticAMD" in platform.processor()
