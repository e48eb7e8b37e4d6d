"""Decision thresholds of blind estimation, one frozen dataclass per decision. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EstimateThresholds:
    """Whether the estimate of a parametric blur is used; ``research/blind/compare.py`` compares the
    estimates with the truth.
    """

    settled: float = 0.1
    """Largest last step, and largest deviation of the chains, with which EM has converged; in the
    unit of :meth:`Family.distance`.
    """
    largest: float = 3.0
    """Standard deviation of the blur in pixels above which the picture is examined at a reduced
    size.
    """


@dataclass(frozen=True)
class MovementThresholds:
    """How far from its diagnosis a movement is measured. Chosen on the pictures in ``CHOSEN_ON`` of
    ``research/diagnosis/movements.py``, which measures the errors on the others. All are in the
    unit of :meth:`Family.distance`.
    """

    reach: float = 0.35
    """Reach of the first search in the spectrum, and largest distance of its result from the
    diagnosis. The likelihood has other maxima farther away.
    """
    reach_confirmed: float = 0.15
    """Reach of the search in the edges of a page or screen if the spectrum confirms the diagnosis.
    """
    reach_unconfirmed: float = 0.5
    """The same if it does not. Farther away, halves and doubles of the length can have as much
    evidence.
    """


@dataclass(frozen=True)
class KernelThresholds:
    """Whether a kernel of any shape is used. Chosen on withheld pictures with
    ``research/free_kernels/compare.py --withheld``; ``research/free_kernels/sharp.py`` counts the
    kernels found in sharp pictures.
    """

    evidence_per_pixel: float = 0.2
    """Evidence per pixel, in nats, by which a kernel must beat the parametric blur. The evidence is
    approximate: on withheld pages wide kernels had up to 0.16 more than the disc or Gaussian that
    was right.
    """
    narrow: float = 0.5
    """Standard deviation in pixels below which a kernel is no blur."""
    weight: float = 1e-3
    """Share of the kernel's sum above which a weight counts as a parameter."""
    spread: float = 0.1
    """Mean difference (1 - correlation) of the kernels of several starts up to which the result is
    *fairly sure*.
    """
    alike: float = 0.95
    """Correlation from which two kernels are one candidate."""
    gain: float = 0.002
    """Smallest relative gain of evidence for which candidates are refined once more."""
    least_noise: float = 0.006
    """Smallest standard deviation of the noise on the [-1, 1] scale; lower estimates are raised to
    it, since no blur is exactly a convolution.
    """


@dataclass(frozen=True)
class WeightThresholds:
    """Which weights of an estimated kernel are errors of the estimate and become 0. Chosen as
    :class:`KernelThresholds`.
    """

    island: float = 0.1
    """Share of the kernel's sum below which a connected group of weights is dropped."""
    predicted: float = 0.05
    """Share of the largest weight below which edge prediction drops a weight."""
    improved: float = 0.02
    """Share of the largest weight below which EM drops a weight."""


ESTIMATE = EstimateThresholds()
MOVEMENT = MovementThresholds()
KERNEL = KernelThresholds()
WEIGHT = WeightThresholds()
