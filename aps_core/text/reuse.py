"""Reuse of keys and values in the prior's forward pass, as Fast-dLLM does (Wu et al. 2025, arXiv
2505.22618). An approximation that measures its own error.

A masked language model attends in both directions, so every decided token changes the keys and
values of all positions, which must be computed anew in every reverse step. Those of the prompt and
of decided tokens change little. They are kept while a block is decoded, and only a window of
positions is computed: the block and the masks after it (``prefix``), or the block alone (``dual``).
``refreshes`` times per block, all positions are computed. Every refresh after a block's first
compares the predictions of both ways and adds to :class:`Reuse`.

Shapes: B rows, P prompt tokens, S sequence (prompt and answer), W positions of the window, V
vocabulary, H key heads, D width of a head, N masks of the block in all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from aps_core.errors import InvalidSpec
from aps_core.sampling.cuda_graph import captured
from aps_core.text.blocks import Block
from aps_core.text.config import TextConfig
from aps_core.text.filtering import tempered
from aps_core.text.masked_lm import MaskedLM, positions
from aps_core.types import TextPrior


@dataclass(frozen=True)
class Reuse:
    """What reuse saved and what it changed."""

    computed: int = 0
    """Token positions that the prior computed, those of the comparison included."""
    exact: int = 0
    """Token positions without reuse."""
    compared: int = 0
    """Predictions (of one masked token each) that were compared with exact ones."""
    distance: float = 0.0
    """Sum of their total variation distances, each in [0, 1]."""
    agreed: int = 0
    """How many have the same likeliest token."""

    def __add__(self, other: Reuse) -> Reuse:
        return Reuse(
            computed=self.computed + other.computed,
            exact=self.exact + other.exact,
            compared=self.compared + other.compared,
            distance=self.distance + other.distance,
            agreed=self.agreed + other.agreed,
        )

    def summary(self) -> dict[str, float | None]:
        """Share of positions computed, and the error: mean total variation distance between the
        reused and the exact prediction of a token, and the share with the same likeliest token.
        None without a comparison.
        """
        known = self.compared > 0
        return {
            "computed_share": self.computed / max(1, self.exact),
            "compared": self.compared,
            "mean_distance": self.distance / self.compared if known else None,
            "same_token": self.agreed / self.compared if known else None,
        }


class Window:
    """Consecutive positions that are computed. Its tensors keep shape and address, so that a CUDA
    graph serves all windows of one width.
    """

    def __init__(self, width: int, length: int, device: torch.device) -> None:
        self.width = width
        self.start = torch.zeros((), dtype=torch.long, device=device)
        self.step_W = torch.arange(width, device=device)
        self.position_S = torch.arange(length, device=device)

    def taken(self, all_BS: Tensor) -> Tensor:
        """The window (B, W) of values at all positions."""
        return all_BS.index_select(1, self.start + self.step_W)

    def put(self, kept: Tensor, fresh: Tensor, dim: int, shift: int = 0) -> None:
        """Writes the window's values ``fresh`` into ``kept``, ``shift`` positions further right,
        along the dimension of the positions.

        It gathers, which is deterministic on CUDA as it is; an indexed write would have to sort.
        """
        place_S = self.position_S - self.start - shift
        inside_S = (place_S >= 0) & (place_S < self.width)
        spread = fresh.index_select(dim, place_S.clamp(0, self.width - 1))
        shape = [1] * kept.ndim
        shape[dim] = len(place_S)
        kept.copy_(torch.where(inside_S.view(shape), spread, kept))


class KeptLayer(DynamicLayer):
    """Keys and values (B, H, S, D) of one layer. A pass replaces those of its window."""

    window: Window

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions, with the window's new ones."""
        if self.keys is None or self.values is None:  # the first pass computes all positions
            self.keys = key_states.clone()
            self.values = value_states.clone()
        else:
            self.window.put(self.keys, key_states, dim=2)
            self.window.put(self.values, value_states, dim=2)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Number of keys, and the position of the first."""
        return len(self.window.position_S), 0


class ReusingForward:
    """The prior's forward pass, with keys and values reused between the reverse steps of a block.

    On CUDA, one graph serves all passes over the same number of positions.
    """

    def __init__(
        self,
        prior: TextPrior,
        config: TextConfig,
        ids_BS: Tensor,
        attention_BS: Tensor | None,
        graph: bool | None = None,
        refreshed_BS: Tensor | None = None,
    ) -> None:
        """``ids_BS`` is the sequence; ``refreshed_BS`` that of the last refresh, if a run is
        resumed.

        Raises:
            InvalidSpec: the prior's class does not support reuse.
        """
        if not isinstance(prior, MaskedLM):
            raise InvalidSpec(
                f"A prior of class {type(prior).__name__} cannot reuse keys and values; leave"
                " sampler.reuse at 'none'."
            )
        self.prior = prior
        self.config = config
        self.graph = ids_BS.is_cuda if graph is None else graph
        self.ids_BS = ids_BS.clone()
        self.refreshed_BS = ids_BS if refreshed_BS is None else refreshed_BS
        """Sequence of the last refresh. Keys and values follow from it, so that a checkpoint needs
        no others.
        """
        self.logits_BSV = torch.zeros(*ids_BS.shape, prior.vocab_size, device=ids_BS.device)
        self.layers = [KeptLayer() for _ in range(prior.model.config.num_hidden_layers)]
        self.passes: dict[int, tuple[Window, Callable[[], None]]] = {}
        self.mask: Tensor | None = None
        self.position_BS = torch.arange(ids_BS.shape[1], device=ids_BS.device)[None]
        if attention_BS is not None and not bool(attention_BS.all()):
            self.mask = attention_BS.bool()[:, None, None]
            self.position_BS = positions(attention_BS)
        self.report = Reuse()
        if refreshed_BS is not None:
            self._compute(refreshed_BS, 0, ids_BS.shape[1])

    def __call__(self, ids_BS: Tensor, step: int, block: Block) -> Tensor:
        """Logits (B, S, V); those outside the window are of the last refresh. The next call
        overwrites them.
        """
        length = ids_BS.shape[1]
        prompt = length - self.config.max_new_tokens
        interval = -(-(block.last - block.first) // self.config.refreshes)
        refresh, reused_NV = (step - block.first) % interval == 0, None
        masked_BS = (ids_BS == self.prior.mask_id) & block.mask(prompt, length, ids_BS.device)
        if step > block.first:
            # a shifted prior predicts the block's first token from the position before it
            start = prompt + block.start - int(self.prior.shifted)
            end = length if self.config.reuse == "prefix" else prompt + block.end
            self._compute(ids_BS, start, end)
            reused_NV = self.logits_BSV[masked_BS] if refresh else None
        if refresh:
            self.refreshed_BS = ids_BS.clone()
            self._compute(ids_BS, 0, length)
        if reused_NV is not None:
            self.report += compared(reused_NV, self.logits_BSV[masked_BS], self.config)
        self.report += Reuse(exact=ids_BS.numel())
        if ids_BS.is_cuda:
            torch.cuda.synchronize()  # so that it can be timed
        return self.logits_BSV

    def _compute(self, ids_BS: Tensor, start: int, end: int) -> None:
        """Computes the positions ``start`` to ``end - 1``."""
        self.ids_BS.copy_(ids_BS)
        width = end - start
        if width not in self.passes:
            window = Window(width, self.position_BS.shape[1], ids_BS.device)
            run = partial(self._run, window)
            self.passes[width] = window, run
            window.start.fill_(start)
            if self.graph:
                self.passes[width] = window, captured(run)
        window, replay = self.passes[width]
        window.start.fill_(start)
        replay()
        self.report += Reuse(computed=len(ids_BS) * width)

    @torch.no_grad()
    def _run(self, window: Window) -> None:
        """One pass over a window; nothing in it synchronises with the device."""
        for layer in self.layers:
            layer.window = window
        logits_BWV: Tensor = self.prior.model(
            input_ids=window.taken(self.ids_BS),
            position_ids=window.taken(self.position_BS),
            attention_mask=self.mask
            if self.mask is None
            else self.mask.expand(-1, 1, window.width, -1),
            past_key_values=Cache(list(self.layers)),
        ).logits
        window.put(self.logits_BSV, logits_BWV.float(), dim=1, shift=int(self.prior.shifted))


def compared(reused_NV: Tensor, exact_NV: Tensor, config: TextConfig) -> Reuse:
    """Difference of two predictions of the same tokens, at the sampler's temperature."""
    p_NV, q_NV = (tempered(logits, config).softmax(-1) for logits in (reused_NV, exact_NV))
    return Reuse(
        compared=len(p_NV),
        distance=float((p_NV - q_NV).abs().sum() / 2),
        agreed=int((reused_NV.argmax(-1) == exact_NV.argmax(-1)).sum()),
    )
