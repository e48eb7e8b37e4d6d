"""Likelihoods: what a sampler may know of how a measurement was made, and of its noise.

Shapes: see :mod:`aps_core.types`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


class ColouredNoise(Protocol):
    """Noise whose values are not independent of each other."""

    @property
    def deviation(self) -> float:
        """Standard deviation of white noise that hides about as much, on the [-1, 1] scale."""
        ...

    def whitening(self, like_BCHW: Tensor) -> Callable[[Tensor], Tensor]:
        """The linear map of residuals like ``like_BCHW`` to independent values (B, ...). If the
        residuals are this noise, their sum of squares is that of white noise of ``deviation``.
        """
        ...


Noise: TypeAlias = "float | Tensor | ColouredNoise"
"""Standard deviation of white noise, of all values or of each; or coloured noise."""


@runtime_checkable
class Likelihood(Protocol):
    """An objective whose noise is known well enough to weigh it against other knowledge."""

    def negative_log_likelihood(self, x_BCHW: Tensor) -> Tensor:
        """``-log q(y | x)`` (B,) in nats, up to a constant."""
        ...


Coverage = Literal["pixels", "gaps", "mixtures"]
"""What was measured: all pixels, some of them (others missing or clipped), or mixtures."""


class Pixels(NamedTuple):
    """Pixels that were measured each by itself: noisy values, which of these are known (boolean;
    others were clipped or not measured), the noise's deviation, if any are missing, if it is white,
    and if its deviation is the same for all.
    """

    y_BCHW: Tensor
    known_BCHW: Tensor
    sigma: float
    missing: bool
    white: bool
    even: bool = True


@runtime_checkable
class MeasurementLikelihood(Likelihood, Protocol):
    """A likelihood that knows how the measurement was made."""

    sigma: float
    """Standard deviation of the noise, > 0."""

    def whitened(self) -> Self:
        """The same, with noise that is not white taken for what it is."""
        ...

    def noisier(self, least: float) -> Self:
        """The same with so much noise added that its deviation is at least ``least``."""
        ...

    def coverage(self, x_BCHW: Tensor) -> Coverage:
        """What was measured of pictures (B, 3, H, W)."""
        ...

    def pixels(self, x_BCHW: Tensor) -> Pixels | None:
        """The measured pixels of pictures (B, 3, H, W); None if mixtures of them were measured."""
        ...
