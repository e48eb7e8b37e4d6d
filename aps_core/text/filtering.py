"""Temperature, nucleus and top-k; drawing tokens from what is left, and their confidence.

Shapes: N positions, V vocabulary, C candidates (the most likely tokens).
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from aps_core.text.config import TextConfig

FIXED_POINT = 2.0**40
"""Integer that represents probability 1 when probabilities are summed as integers; finer than
float32 at 150,000 tokens.
"""

CANDIDATES = 256
"""Number of most likely tokens that are sorted before resorting to the whole vocabulary."""


def filtered(logits_NV: Tensor, config: TextConfig) -> Tensor:
    """Applies temperature, then nucleus, then top-k. Removed tokens get the minimum of the dtype.

    Only the most likely tokens are sorted. If they do not determine the result (ties, or a flat
    distribution), the whole vocabulary is sorted. The result equals a full sort in both cases.
    """
    if config.temperature > 0:
        logits_NV = logits_NV / config.temperature
    nucleus = config.top_p is not None and config.top_p < 1
    if not nucleus and config.top_k is None:
        return logits_NV
    # fixed point: sums of integers on a GPU do not depend on the order, sums of floats do
    share_NV = (logits_NV.softmax(-1) * FIXED_POINT).long() if nucleus else None
    likeliest = min(max(CANDIDATES, 2 * (config.top_k or 0)), logits_NV.shape[-1])
    value_NC, token_NC = _ranked(*logits_NV.topk(likeliest, dim=-1))
    kept_NC = _kept(value_NC, token_NC, share_NV, config)
    # a token as likely as the last candidate could have been another one
    unsettled_NC = kept_NC & (value_NC == value_NC[:, -1:])
    if likeliest < logits_NV.shape[-1] and bool(unsettled_NC.any()):
        value_NC, token_NC = logits_NV.sort(dim=-1, descending=True, stable=True)
        kept_NC = _kept(value_NC, token_NC, share_NV, config)
    lowest = torch.finfo(logits_NV.dtype).min
    return torch.full_like(logits_NV, lowest).scatter(
        -1, token_NC, value_NC.masked_fill(~kept_NC, lowest)
    )


def _ranked(value_NC: Tensor, token_NC: Tensor) -> tuple[Tensor, Tensor]:
    """Candidates by decreasing logit, then increasing id, equal to a stable sort of the
    vocabulary.
    """
    token_NC, by_id_NC = token_NC.sort(dim=-1)
    value_NC, order_NC = value_NC.gather(-1, by_id_NC).sort(dim=-1, descending=True, stable=True)
    return value_NC, token_NC.gather(-1, order_NC)


def _kept(
    value_NC: Tensor, token_NC: Tensor, share_NV: Tensor | None, config: TextConfig
) -> Tensor:
    """Which ranked tokens are kept, including the token that crosses the nucleus and all ties with
    the k-th. ``share`` holds probabilities in fixed point.
    """
    kept_NC = torch.ones_like(value_NC, dtype=torch.bool)
    if share_NV is not None:
        share_NC = share_NV.gather(-1, token_NC)
        kept_NC = share_NC.cumsum(-1) - share_NC <= (config.top_p or 1) * FIXED_POINT
    if config.top_k is not None:
        kept_NC &= value_NC >= value_NC[:, min(config.top_k, value_NC.shape[-1]) - 1, None]
    return kept_NC


def sample_tokens(
    logits_NV: Tensor, config: TextConfig, generator: Generator, initial_NV: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Samples a token per position and returns its confidence and its id, both (N,).

    ``initial_NV`` holds the prior's logits before guidance; by default there was none.
    """
    probs_NV = filtered(logits_NV, config).softmax(-1)
    if config.temperature > 0:
        token_N = torch.multinomial(probs_NV, 1, generator=generator)[:, 0]
    else:
        token_N = probs_NV.argmax(-1)
    if config.alg == "anchor":
        return logits_NV.gather(-1, token_N[:, None])[:, 0], token_N
    if config.confidence == "initial" and initial_NV is not None:
        probs_NV = tempered(initial_NV, config).softmax(-1)
    elif config.confidence != "filtered":
        probs_NV = tempered(logits_NV, config).softmax(-1)
    return _confidence(probs_NV, token_N, config), token_N


def tempered(logits: Tensor, config: TextConfig) -> Tensor:
    """Logits (..., V) divided by the temperature; unchanged at temperature 0."""
    return logits / config.temperature if config.temperature > 0 else logits


def _confidence(probs_NV: Tensor, token_N: Tensor, config: TextConfig) -> Tensor:
    if config.alg == "topk_margin":
        top_N2 = probs_NV.topk(2, dim=-1).values
        return top_N2[:, 0] - top_N2[:, 1]
    if config.alg == "entropy":
        return (probs_NV * torch.log(probs_NV + 1e-10)).sum(-1)
    return probs_NV.gather(-1, token_N[:, None])[:, 0]


def drawn_at(logits_NV: Tensor, uniform_N: Tensor, config: TextConfig) -> Tensor:
    """Token (N,) of each position at the quantile ``uniform_N`` in [0, 1) of the filtered
    distribution.

    Unlike :func:`sample_tokens`, nothing synchronises with the device or draws random numbers, so
    that a CUDA graph can contain it. Only the ``CANDIDATES`` most likely tokens are considered;
    ``top_k`` is usually smaller.
    """
    logits_NV = tempered(logits_NV, config)
    value_NC, token_NC = _ranked(*logits_NV.topk(min(CANDIDATES, logits_NV.shape[-1]), dim=-1))
    share_NC = ((value_NC - logits_NV.logsumexp(-1, keepdim=True)).exp() * FIXED_POINT).long()
    kept_NC = torch.ones_like(share_NC, dtype=torch.bool)
    if config.top_p is not None:
        kept_NC = share_NC.cumsum(-1) - share_NC <= config.top_p * FIXED_POINT
    if config.top_k is not None:
        kept_NC &= value_NC >= value_NC[:, min(config.top_k, value_NC.shape[-1]) - 1, None]
    below_NC = (share_NC * kept_NC).cumsum(-1)
    target_N1 = (uniform_N[:, None].double() * below_NC[:, -1:].double()).long()
    place_N1 = (below_NC <= target_N1).sum(-1, keepdim=True)
    return token_NC.gather(-1, place_N1)[:, 0]
