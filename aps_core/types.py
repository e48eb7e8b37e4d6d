"""The nouns of the library: prior, tokenizer, measurement operator, objective, step hook.

Shape legend for the whole project: B batch (posterior samples), L tokens in raster order,
K codebook size, D code dimension, C H W picture channels, height, width. A *grid* is ``(gh, gw)``
with ``gh * gw == L``. Pictures are RGB in [-1, 1]. Token states hold codes ``0..K-1`` or ``MASK``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Features = Callable[["Tensor"], list["Tensor"]]
"""Maps pictures (B, 3, H, W) in [-1, 1] to feature maps, differentiable."""

MASK = -1
"""A position not decided yet. Priors translate it to their own mask id."""

Grid = tuple[int, int]


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

    def quantize(self, e_BLD: Tensor) -> tuple[Tensor, Tensor]:
        """Nearest code of every embedding: codes (B, L) and their embeddings (B, L, D)."""
        ...

    def decode(self, e_BLD: Tensor, grid: Grid) -> Tensor:
        """Embeddings, quantised or not, to pictures (B, 3, gh * stride, gw * stride)."""
        ...


class Prior(Protocol):
    """A masked diffusion prior over the tokenizer's codes."""

    tokenizer: Tokenizer

    def logits(
        self,
        z_BL: Tensor,
        *,
        grid: Grid,
        mask_fraction: float,
        condition: str,
        guidance_scale: float,
    ) -> Tensor:
        """Logits (B, L, K), float32, of every position given the decided codes. Runs without
        gradients.
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
        """Ids of a prompt in the model's own layout."""
        ...

    def decode(self, ids: list[int]) -> str:
        """The text of an answer's ids."""
        ...


class BoundOperator(Protocol):
    """A measurement operator with its random parts drawn: pure, differentiable, batched."""

    @property
    def weight(self) -> Tensor | None:
        """1 where the measurement carries information, 0 where it does not; broadcasts to ``y``.
        None: everywhere.
        """
        ...

    def __call__(self, x_BCHW: Tensor, /) -> Tensor:
        """The noiseless measurement A(x)."""
        ...

    @property
    def clips(self) -> bool:
        """Whether A ends by clipping to [-1, 1]."""
        ...

    def unclipped(self, x_BCHW: Tensor, /) -> Tensor:
        """A(x) before it clips."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What was drawn (kernel, mask), to be stored with the job. Empty when nothing was."""
        ...


class Objective(Protocol):
    """What the inner optimisation minimises."""

    noise_floor: float
    """Expected misfit of the truth: below it only noise is left to fit. 0 when unknown."""
    temperature: float
    """Loss per nat: ``exp(-loss / temperature)`` is the likelihood up to a constant. 0 when
    unknown.
    """

    def __call__(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """(loss, misfit), both (B,): the loss is what Adam sees, the misfit is in the measurement's
        own units.
        """
        ...


@dataclass(frozen=True)
class Sample:
    """Outcome of a run: codes (B, L), decoded pictures (B, 3, H, W) in [-1, 1] up to the decoder's
    overshoot, and the misfit (B,), 0 where nothing was measured.
    """

    z_BL: Tensor
    x_BCHW: Tensor
    misfit_B: Tensor


@dataclass(frozen=True)
class SamplerState:
    """Everything needed to continue a run after a finished reverse step: a few kilobytes, unless
    the sampler carries more.
    """

    step: int
    """Finished reverse steps."""
    z_BL: Tensor
    """Codes or ``MASK``."""
    generator_state: Tensor
    """State of the run's random generator."""
    carried: Mapping[str, Tensor] = field(default_factory=dict)
    """What else a sampler takes from step to step; see :class:`aps_core.samplers.base.Step`."""


@dataclass(frozen=True)
class StepInfo:
    """What the step hook sees after each reverse step."""

    state: SamplerState
    total: int
    """Reverse steps of the whole run."""
    x_hat_BCHW: Tensor
    """Decoded estimate from the last inner iteration; costs no extra decode. May reach beyond the
    picture (padding).
    """
    anchors_BL: Tensor
    """True where a token was decided in this step."""
    confidence_BL: Tensor
    """Every masked token's score, before noise or chance on the order of the anchors; -inf where
    decided.
    """
    loss_curve: list[float]
    """Loss at every inner iteration, mean over the batch: one value for each decoder evaluation."""
    misfit: float
    """Data misfit at the last inner iteration, mean over the batch."""
    seconds: float
    """Wall time of this step."""
    prior_seconds: float
    """Of it, the prior's forward."""


@dataclass(frozen=True)
class InnerInfo:
    """What the inner hook sees between two inner iterations of a reverse step."""

    step: int
    """Reverse step in progress, from 1."""
    total: int
    """Reverse steps of the whole run."""
    iteration: int
    """Finished inner iterations of this step."""
    inner_steps: int
    """The most inner iterations this step may take."""
    loss: float
    """Loss (of text: reward) at the last iteration, mean over the batch."""


InnerHook = Callable[[InnerInfo], bool | None]
"""Called every 10 inner iterations, or every 100 ms where those take longer; returning False
cancels the run.
"""

StepHook = Callable[[StepInfo], bool | None]
"""Called after every reverse step; returning False cancels the run."""
