"""Fallbacks for devices that run out of memory; each is slower and needs less memory than the
previous one.

``free_cache`` releases memory cached by the allocator; the result stays the same. ``split_batch``
passes samples through prior and decoder one at a time. ``recompute`` also keeps only one tensor per
residual block of the decoder and recomputes the rest in the backward pass. The last two change
rounding, which can change tokens. The result lists the fallbacks used.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from aps_core.engines.engine import Engine, ImageEngine
from aps_core.types import Denoised, DenoisingPrior, Grid, NoisePrior, Prior, Tokenizer

Fallback = Literal["free_cache", "split_batch", "recompute"]

_ALLOCATION_FAILED = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA out of memory",
    "DefaultCPUAllocator: ",  # "can't allocate memory", or "not enough memory" on Windows
)
"""Error messages of libraries and allocators that do not raise ``torch.OutOfMemoryError``."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether ``error`` means that the device ran out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        words in str(error) for words in _ALLOCATION_FAILED
    )


def free_memory() -> None:
    """Returns cached memory to the device.

    Call it when nothing refers to the failed computation any more, including its traceback.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def fallbacks(engine: Engine, samples: int) -> Iterator[tuple[Fallback, Engine]]:
    """Yields the fallbacks for a run with this many samples, each with its engine."""
    yield "free_cache", engine
    if not isinstance(engine, ImageEngine):
        return
    if samples > 1:
        yield "split_batch", _per_sample(engine, recompute=False)
    if hasattr(engine.prior.tokenizer, "recomputing"):
        yield "recompute", _per_sample(engine, recompute=True)


def _per_sample(engine: ImageEngine, recompute: bool) -> ImageEngine:
    copied, prior = copy.copy(engine), engine.prior
    if isinstance(prior, DenoisingPrior):
        copied.prior = PerSampleDenoiser(prior, recompute)
    elif isinstance(prior, NoisePrior):
        copied.prior = PerSampleNoise(prior, recompute)
    else:
        copied.prior = PerSamplePrior(prior, recompute)
    return copied


class PerSamplePrior:
    """A prior that evaluates one sample at a time."""

    def __init__(self, prior: Prior, recompute: bool) -> None:
        self.prior = prior
        self.tokenizer: Tokenizer = PerSampleTokenizer(prior.tokenizer, recompute)

    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """Same result as the wrapped prior, up to rounding."""
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


class PerSampleDenoiser(PerSamplePrior):
    """A denoising prior that evaluates one sample at a time."""

    def __init__(self, prior: DenoisingPrior, recompute: bool) -> None:
        super().__init__(prior, recompute)
        self.denoiser = prior

    def denoise(self, estimate_BCHW: Tensor, pulled_BCHW: Tensor) -> Denoised:
        """Same result as the wrapped prior, up to rounding."""
        samples = zip(estimate_BCHW.split(1), pulled_BCHW.split(1), strict=True)
        one_by_one = [self.denoiser.denoise(*sample) for sample in samples]
        return Denoised(*(torch.cat(parts) for parts in zip(*one_by_one, strict=True)))


class PerSampleNoise(PerSamplePrior):
    """A prior of noise that evaluates one sample at a time."""

    def __init__(self, prior: NoisePrior, recompute: bool) -> None:
        super().__init__(prior, recompute)
        self.denoiser = prior

    def without_noise(self, noisy_BCHW: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Same result as the wrapped prior, up to rounding."""
        one_by_one = [self.denoiser.without_noise(x_1CHW, sigma) for x_1CHW in noisy_BCHW.split(1)]
        mean_BCHW, deviation_BHW = (torch.cat(parts) for parts in zip(*one_by_one, strict=True))
        return mean_BCHW, deviation_BHW


class PerSampleTokenizer:
    """A tokenizer that decodes one sample at a time and only keeps its embeddings until the
    backward pass.
    """

    def __init__(self, tokenizer: Tokenizer, recompute: bool) -> None:
        self.tokenizer = tokenizer
        self.codebook_KD = tokenizer.codebook_KD
        self.stride = tokenizer.stride
        self.features = tokenizer.features
        self.feature_maps = tokenizer.feature_maps
        self.encode = tokenizer.encode
        self.quantize = tokenizer.quantize
        self._recomputing = (
            getattr(tokenizer, "recomputing", nullcontext) if recompute else nullcontext
        )

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Same result as the wrapped tokenizer, up to rounding."""
        if len(e_BLD) == 1 or not e_BLD.requires_grad:
            return torch.cat([self._decode(e_1LD, grid) for e_1LD in e_BLD.split(1)])
        # the decoder uses no random numbers, so the generator's state need not be saved
        return torch.cat(
            [
                checkpoint(self._decode, e_1LD, grid, use_reentrant=False, preserve_rng_state=False)
                for e_1LD in e_BLD.split(1)
            ]
        )

    def _decode(self, e_1LD: Tensor, grid: Grid) -> Tensor:
        with self._recomputing():
            return self.tokenizer.decode(e_1LD, grid)
