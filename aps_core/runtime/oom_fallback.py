"""A ladder for devices that run out of memory: each rung is slower and needs less than the one
before.

``free_cache`` gives back what the allocator keeps for later and goes on as before: the same result.
``split_batch`` lets samples pass the prior and the decoder one at a time. ``recompute`` also has
the decoder keep one tensor a residual block and compute the rest again in its backward pass. The
last two change results by rounding only, which can change tokens: a result says on which rungs it
stood.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aps_core.runtime.engine import Engine, ImageEngine
from aps_core.types import Grid, Prior, Tokenizer

if TYPE_CHECKING:
    from aps_core.tasks.base import TaskSpec

Rung = Literal["free_cache", "split_batch", "recompute"]

_ALLOCATION_FAILED = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA out of memory",
)
"""How libraries say it that do not raise ``torch.OutOfMemoryError``."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether a smaller computation would have succeeded."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        words in str(error) for words in _ALLOCATION_FAILED
    )


def free_memory() -> None:
    """Gives memory back to the device; call it when nothing refers to the failed computation any
    more, its traceback included.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def ladder(spec: TaskSpec, engine: Engine) -> Iterator[tuple[Rung, Engine]]:
    """The rungs that can help this task, each with the engine to go on with."""
    yield "free_cache", engine
    if not isinstance(engine, ImageEngine):
        return
    if getattr(spec, "num_samples", 1) > 1:
        yield "split_batch", _frugal(engine, recompute=False)
    if hasattr(engine.prior.tokenizer, "recomputing"):
        yield "recompute", _frugal(engine, recompute=True)


def _frugal(engine: ImageEngine, recompute: bool) -> ImageEngine:
    frugal = copy.copy(engine)
    frugal.prior = FrugalPrior(engine.prior, recompute)
    return frugal


class FrugalPrior:
    """A prior that looks at one sample at a time."""

    def __init__(self, prior: Prior, recompute: bool) -> None:
        self.prior = prior
        self.tokenizer: Tokenizer = FrugalTokenizer(prior.tokenizer, recompute)

    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """See :meth:`aps_core.types.Prior.logits`."""
        one_by_one = [
            self.prior.logits(
                z_1L,
                grid=grid,
                mask_fraction=mask_fraction,
                condition=condition,
                guidance_scale=guidance_scale,
            )
            for z_1L in z_BL.split(1)
        ]
        return torch.cat(one_by_one)


class FrugalTokenizer:
    """A tokenizer that decodes one sample at a time, and keeps nothing of it but its embeddings
    until the backward pass.
    """

    def __init__(self, tokenizer: Tokenizer, recompute: bool) -> None:
        self.tokenizer = tokenizer
        self.codebook_KD, self.stride = tokenizer.codebook_KD, tokenizer.stride
        self.features, self.feature_maps = tokenizer.features, tokenizer.feature_maps
        self.encode, self.quantize = tokenizer.encode, tokenizer.quantize
        self._recomputing = (
            getattr(tokenizer, "recomputing", nullcontext) if recompute else nullcontext
        )

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """See :meth:`aps_core.types.Tokenizer.decode`."""
        if len(e_BLD) == 1 or not e_BLD.requires_grad:
            return torch.cat([self._decode(e_1LD, grid) for e_1LD in e_BLD.split(1)])
        # the decoder draws nothing, so no generator's state needs to be kept
        return torch.cat(
            [
                checkpoint(self._decode, e_1LD, grid, use_reentrant=False, preserve_rng_state=False)
                for e_1LD in e_BLD.split(1)
            ]
        )

    def _decode(self, e_1LD: Tensor, grid: Grid) -> Tensor:
        with self._recomputing():
            return self.tokenizer.decode(e_1LD, grid)
