"""Protocols of likelihoods: what a sampler can ask about a measurement and its noise.

Shapes: see :mod:`aps_core.types`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


class ColouredNoise(Protocol):
    """Coloured noise: values are correlated."""

    @property
    def deviation(self) -> float:
        """Standard deviation of white noise that masks about as much, on the [-1, 1] scale."""
        ...

    def whitening(self, like_BCHW: Tensor) -> Callable[[Tensor], Tensor]:
        """Linear map from residuals of the shape of ``like_BCHW`` to independent values (B, ...).
        It maps this noise to white noise with standard deviation ``deviation``.
        """
        ...


Noise: TypeAlias = "float | Tensor | ColouredNoise"
"""Standard deviation of white noise, one for all values or one per value; or coloured noise."""


@runtime_checkable
class Likelihood(Protocol):
    """An objective with a known noise model, in nats, so that it can be combined with a prior."""

    def negative_log_likelihood(self, x_BCHW: Tensor) -> Tensor:
        """``-log q(y | x)`` (B,) in nats, up to a constant."""
        ...


Coverage = Literal["pixels", "gaps", "mixtures"]
"""What was measured: all pixels, some (others missing or clipped), or mixtures of pixels."""


class Pixels(NamedTuple):
    """Pixels that were measured individually."""

    y_BCHW: Tensor
    """Noisy values."""
    known_BCHW: Tensor
    """False where a value was clipped or not measured."""
    sigma: float
    """Standard deviation of the noise."""
    missing: bool
    """Whether any pixel may be missing."""
    white: bool
    """Whether the noise is white."""
    even: bool = True
    """Whether the noise has the same deviation everywhere."""


@runtime_checkable
class MeasurementLikelihood(Likelihood, Protocol):
    """A likelihood that also describes what was measured."""

    sigma: float
    """Standard deviation of the noise, > 0."""

    def whitened(self) -> Self:
        """The same likelihood, accounting for coloured noise."""
        ...

    def noisier(self, least: float) -> Self:
        """The same likelihood with noise added, so that its deviation is at least ``least``."""
        ...

    def coverage(self, x_BCHW: Tensor) -> Coverage:
        """What was measured of pictures (B, 3, H, W)."""
        ...

    def pixels(self, x_BCHW: Tensor) -> Pixels | None:
        """Measured pixels of pictures (B, 3, H, W); None if mixtures of pixels were measured."""
        ...
