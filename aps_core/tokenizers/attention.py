"""Attention over a picture's tokens with a fast, deterministic backward pass.

Image decoders use a single head of 512 channels, too wide for PyTorch's flash kernel on CUDA. Its
memory-efficient kernel is slow in deterministic mode, because one block of threads iterates over
all keys. Explicit matrix products are deterministic and use the whole device. Their score table is
split into slices of queries, so that memory is linear in the number of tokens.

Shapes: B batch, L tokens, R query tokens of a slice, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

TABLE = 4096**2
"""Maximum scores per sample stored for the backward pass: 33 MB in bfloat16, enough for 1024x1024
pixels at stride 16. Larger tables are recomputed in slices.
"""

CPU_TABLE = 2048**2
"""Scores of a slice on a CPU: what its cache holds. PyTorch's fused attention takes up to twice
the time in bfloat16, and is no faster in float32.
"""


def attention(q_BLC: Tensor, k_BLC: Tensor, v_BLC: Tensor) -> Tensor:
    """Softmax attention of one head, (B, L, C); contiguous inputs."""
    table = CPU_TABLE if q_BLC.device.type == "cpu" else TABLE
    return sliced_attention(q_BLC, k_BLC, v_BLC, max(1, table // q_BLC.shape[1]))


def sliced_attention(q_BLC: Tensor, k_BLC: Tensor, v_BLC: Tensor, rows: int) -> Tensor:
    """:func:`attention` by matrix products, ``rows`` queries at a time. Slices of tables larger
    than :data:`TABLE` are not stored for the backward pass.
    """
    length = q_BLC.shape[1]
    if length <= rows:
        return _attend(q_BLC, k_BLC, v_BLC)
    attend = _attend if length**2 <= TABLE else _recomputed
    slices = [attend(q_BRC, k_BLC, v_BLC) for q_BRC in q_BLC.split(rows, dim=1)]
    return torch.cat(slices, dim=1)


def _recomputed(q_BRC: Tensor, k_BLC: Tensor, v_BLC: Tensor) -> Tensor:
    out_BRC: Tensor = checkpoint(
        _attend, q_BRC, k_BLC, v_BLC, use_reentrant=False, preserve_rng_state=False
    )
    return out_BRC


def _attend(q_BRC: Tensor, k_BLC: Tensor, v_BLC: Tensor) -> Tensor:
    scores_BRL = q_BRC * q_BRC.shape[-1] ** -0.5 @ k_BLC.transpose(1, 2)
    out_BRC: Tensor = scores_BRL.softmax(-1) @ v_BLC
    return out_BRC
