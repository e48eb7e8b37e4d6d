"""Copies from the host to a device."""

from __future__ import annotations

import torch
from torch import Tensor


def moved(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on a device. The host does not wait until a GPU has ended its work so far."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
