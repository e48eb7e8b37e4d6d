"""Protocols and records shared by the whole library: prior, tokenizer, operator, objective, hooks.

Shape legend for the whole project: B batch (posterior samples), L tokens in raster order, K
codebook size, D code dimension, C H W picture channels, height, width. A *grid* is ``(gh, gw)``
with ``gh * gw == L``. Pictures are RGB in [-1, 1]. Token states hold codes ``0..K-1`` or ``MASK``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Features = Callable[["Tensor"], list["Tensor"]]
"""Maps pictures (B, 3, H, W) in [-1, 1] to feature maps, differentiable."""

MASK = -1
"""Marks an undecided token. Priors translate it to their own mask id."""

Grid = tuple[int, int]

Size = tuple[int, int]
"""Width and height in pixels."""


class Tokenizer(Protocol):
    """Maps pictures to codes and back; the decoder is differentiable and its weights are frozen."""

    codebook_KD: Tensor
    stride: int

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Pre-quantisation latents (B, D, h, w), differentiable."""
        ...

    def feature_maps(self, x_BCHW: Tensor) -> list[Tensor]:
        """The encoder's activations (B, C, h, w), finest first, differentiable."""
        ...

    def encode(self, x_BCHW: Tensor) -> Tensor:
        """Pictures in [-1, 1], sides divisible by ``stride``, to codes (B, L)."""
        ...

    def quantize(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Nearest code of every embedding (..., D): codes (...) and their embeddings (..., D)."""
        ...

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Embeddings, quantised or not, to pictures (B, 3, gh * stride, gw * stride)."""
        ...


@runtime_checkable
class Prior(Protocol):
    """A masked diffusion prior over the tokenizer's codes."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Maps pictures to the codes that the prior predicts."""
        ...

    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """Predicts every token from the decided ones, without gradients.

        Args:
            z_BL: codes, or ``MASK`` where undecided.
            grid: rows and columns of the token grid.
            mask_fraction: share of masked tokens in [0, 1], for priors that depend on the noise
                level.
            condition: text prompt; empty for none.
            guidance_scale: classifier-free guidance g >= 0 of ``(1 + g) cond - g uncond``.

        Returns:
            Logits (B, L, K), float32.
        """
        ...


class Denoised(NamedTuple):
    """A prior's prediction of pictures from estimates of them."""

    mean_BL: Tensor
    """Expected brightness of every pixel, in [-1, 1]."""
    variance_BL: Tensor
    """Variance of the brightness, > 0."""
    colours_BCHW: Tensor
    """Colours, added to the brightness."""
    weight_BL: Tensor
    """Weight > 0 of a pixel's divergence in a fit; 1 if independent of the measurement."""


@runtime_checkable
class DenoisingPrior(Prior, Protocol):
    """A prior over pixels that also denoises estimates and predicts the error that remains."""

    def denoise(self, estimate_BCHW: Tensor, pulled_BCHW: Tensor) -> Denoised:
        """Predicts every pixel, without gradients, from an estimate in [-1, 1] and the same after
        :func:`~aps_core.numerics.steepest_descent.steepest_step`.
        """
        ...


@runtime_checkable
class NoisePrior(Prior, Protocol):
    """A prior over pixels that removes white noise of a known level, and judges what remains."""

    def without_noise(self, noisy_BCHW: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
        """Expected pictures (B, 3, H, W), without gradients, of pictures in [-1, 1] with noise of
        standard deviation ``sigma`` on that scale; and the deviation (B, H, W) of their error.
        """
        ...


class TextPrior(Protocol):
    """A masked diffusion language model over a vocabulary of V tokens."""

    mask_id: int
    eos_id: int

    def logits(self, ids_BS: Tensor, attention_BS: Tensor | None = None) -> Tensor:
        """Logits (B, S, V), float32, of the token at every position. Runs without gradients."""
        ...

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a prompt, including the model's chat template."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of an answer's token ids."""
        ...


@runtime_checkable
class BoundOperator(Protocol):
    """A measurement operator with its random parts fixed: deterministic, differentiable, batched.

    An object that lacks one of these members is used as a plain function. In a torch module,
    ``weight`` must be a property: from Python 3.12 on, ``isinstance`` does not find buffers.
    """

    @property
    def weight(self) -> Tensor | None:
        """1 where ``y`` was observed, else 0; broadcasts to ``y``. None: 1 everywhere."""
        ...

    def __call__(self, x_BCHW: Tensor, /) -> Tensor:
        """The noiseless measurement A(x)."""
        ...

    @property
    def clips(self) -> bool:
        """Whether A ends by clipping to [-1, 1]."""
        ...

    def unclipped(self, x_BCHW: Tensor, /) -> Tensor:
        """A(x) before clipping."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Randomly drawn parts (kernel, mask), stored with the job. Empty if the operator has
        none.
        """
        ...


class Objective(Protocol):
    """Loss minimised by the inner optimisation."""

    noise_floor: float
    """Misfit expected of the true picture. Below it, a fit only reproduces noise. 0 if unknown."""
    temperature: float
    """Loss per nat: ``exp(-loss / temperature)`` is proportional to the likelihood; 0: unknown."""

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Loss (B,), which Adam minimises, and misfit (B,) in the units of the measurement."""
        ...


@dataclass(frozen=True)
class Sample:
    """Result of a run: codes ``z_BL``, and their decoded pictures ``x_BCHW`` with C = 3 in [-1, 1],
    which may overshoot slightly, and which the sampler may have corrected. ``misfit_B`` is that of
    the pictures, and 0 without a measurement; ``deviation_BHW`` is the error of their brightness
    that the sampler expects (standard deviation), if known.
    """

    z_BL: Tensor
    x_BCHW: Tensor
    misfit_B: Tensor
    deviation_BHW: Tensor | None = None


@dataclass(frozen=True)
class SamplerState:
    """Everything needed to resume a run after a finished reverse step: a few kilobytes, unless the
    sampler carries further tensors.
    """

    step: int
    """Number of finished reverse steps."""
    z_BL: Tensor
    """Codes or ``MASK``."""
    generator_state: Tensor
    """State of the run's random generator."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """Further tensors of a sampler; see :class:`aps_core.sampling.problem.Step`."""


@dataclass(frozen=True)
class StepInfo:
    """Argument of the step hook, called after each reverse step."""

    state: SamplerState
    total: int
    """Reverse steps of the whole run."""
    x_hat_BCHW: Tensor
    """Decoded estimate from the last inner iteration; costs no extra decode. Includes the padding
    of the token grid on the right and below.
    """
    anchors_BL: Tensor
    """True where a token was decided in this step."""
    confidence_BL: Tensor
    """Confidence of every token on the sampler's own scale, before noise is added to the ranking.
    Its meaning for tokens decided earlier also depends on the sampler.
    """
    loss_curve: list[float]
    """Loss of every evaluation of the objective, mean over the batch."""
    misfit: float
    """Data misfit at the last inner iteration, mean over the batch."""
    seconds: float
    """Wall time of this step in seconds."""
    prior_seconds: float
    """Part of ``seconds`` spent in the prior's forward passes."""
    noise_floor: float = 0.0
    """Misfit expected of the true picture; 0 if unknown."""

    def showing(self, change: Callable[[Tensor], Tensor]) -> StepInfo:
        """Returns a copy with ``change`` applied to the estimate."""
        return replace(self, x_hat_BCHW=change(self.x_hat_BCHW))


@dataclass(frozen=True)
class InnerInfo:
    """Argument of the inner hook, called between inner iterations of a reverse step."""

    step: int
    """Current reverse step, counted from 1."""
    total: int
    """Reverse steps of the whole run."""
    iteration: int
    """Number of finished inner iterations of this step."""
    inner_steps: int
    """Maximum number of inner iterations of this step."""
    loss: float
    """Loss (for text: reward) of the last iteration, mean over the batch."""
    picture: Callable[[], Tensor] | None = None
    """Returns the estimate (B, 3, H, W) of the last iteration, whose values may exceed [-1, 1];
    costs no decode. Valid until the hook returns. None if there is none.
    """

    def showing(self, change: Callable[[Tensor], Tensor]) -> InnerInfo:
        """Returns a copy whose ``picture`` applies ``change`` to the estimate when called."""
        picture = self.picture
        return self if picture is None else replace(self, picture=lambda: change(picture()))


InnerHook = Callable[[InnerInfo], bool | None]
"""Called every 10 inner iterations, or every 100 ms if 10 iterations take longer. Returning False
cancels the run.
"""

StepHook = Callable[[StepInfo], bool | None]
"""Called after every reverse step; returning False cancels the run."""
