"""Decision thresholds of the diagnosis and of its proposal, one frozen dataclass per decision.

``research/diagnosis/simulated.py`` measures the errors of the diagnosis with them on degraded
pictures of ``examples/``, which did not serve to choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class ConfidenceThresholds:
    """Confidence word of a finding. Chosen on withheld pictures of the training corpora (see
    ``docs/diagnosis.md``); ``research/diagnosis/simulated.py`` counts how often each word is right.
    """

    sure: float = 0.9
    """Lowest probability called *sure*."""
    fairly_sure: float = 0.6
    """Lowest probability called *fairly sure*. A picture is examined as a document above it."""


@dataclass(frozen=True)
class ContentThresholds:
    """Document or photograph; ``research/diagnosis/simulated.py`` checks the decision."""

    document: float = 0.5
    """Probability above which the finding names a document, page or screen."""
    flat: float = 0.004
    """Standard deviation on the [-1, 1] scale (half a grey level) below which, in every crop, a
    picture has a single colour.
    """
    letter: int = 5
    """Shorter side in pixels below which content is not judged: the height of the smallest legible
    letters.
    """


@dataclass(frozen=True)
class BlurThresholds:
    """Whether a blur is reported, and at which resolution it is measured;
    ``research/diagnosis/simulated.py`` checks the result.
    """

    sharp: float = 0.25
    """Probability of a sharp picture above which no blur is reported."""
    halved_from: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {"gaussian": 3.5, "defocus": 7.0, "motion": 18.0, "enlarged": 6.0, "shaken": 18.0}
        )
    )
    """Size of each family's blur, in its own unit (pixels; a factor for 'enlarged'), from which the
    picture is also examined at half its resolution.
    """
    smallest_side: int = 96
    """Shorter side in pixels below which a picture is not halved."""


@dataclass(frozen=True)
class NoiseThresholds:
    """Whether noise is reported, and as which kind; ``research/diagnosis/simulated.py`` checks the
    reports of Gaussian noise.
    """

    faint: float = 0.012
    """Standard deviation on the [-1, 1] scale below which noise is not reported."""
    strong: float = 0.04
    """Standard deviation on the [-1, 1] scale above which noise is called strong."""
    impulses_photograph: float = 0.004
    """Share of isolated black or white pixels above which a photograph has impulse noise."""
    impulses_document: float = 0.03
    """The same share for pages and screens, whose dots are such pixels."""
    side_by_side: float = 1.4
    """How much more often than independent pixels black or white ones are adjacent from which they
    are thin strokes: twice and more in small type, at most 1.3 times in photographs with three
    percent of them.
    """
    tiles: int = 4
    """Fewest noisy tiles from which noise is measured."""
    photon_share: float = 0.6
    """Lowest share of the variance at white that grows with brightness for photon noise. On 23
    pictures, photon noise has 0.9 and Gaussian noise at most 0.45.
    """
    straightness: float = 0.75
    """Lowest coefficient of determination of variance over brightness for photon noise. On 23
    pictures, photon noise has 0.85 and Gaussian noise at most 0.7.
    """
    brightness_levels: int = 3
    """Fewest levels of brightness through which that line is fitted."""
    brightness_range: float = 0.2
    """Smallest range of those levels, as a share of white."""


@dataclass(frozen=True)
class CompressionThresholds:
    """Whether a picture is, or once was, a degraded JPEG; ``research/diagnosis/simulated.py``
    checks the reported qualities.
    """

    fine_quality: int = 93
    """JPEG quality from which compression is no degradation."""
    better: int = 15
    """A file's JPEG quality must exceed that of the traces in its pixels by more than this for the
    traces to be of an earlier compression.
    """
    coefficients: int = 150
    """Fewest DCT coefficients from which a quality is estimated."""
    clear: float = 0.35
    """Lowest mean cosine of the coefficients' phases at which there are traces; 1 if all
    coefficients are multiples of the quality's steps.
    """
    clearness_to_confidence: float = 0.35
    """Added to that mean cosine to give the finding's confidence."""


@dataclass(frozen=True)
class ClippingThresholds:
    """Whether clipping is reported: shares of pixels at white or black.
    ``research/diagnosis/simulated.py`` counts false reports on unchanged pictures.
    """

    reported: float = 0.02
    """Share from which clipping is reported."""
    sure: float = 0.05
    """Share above which it is *sure*, else *fairly sure*."""
    wrong: float = 0.1
    """Share above which it is a degradation."""


@dataclass(frozen=True)
class MissingThresholds:
    """Whether pixels of exactly one colour are missing ones; ``research/diagnosis/simulated.py``
    counts false reports on unchanged pictures.
    """

    least: float = 0.01
    """Share of the picture below which none are reported."""
    most: float = 0.98
    """Share above which none are reported: the picture is nearly all of one colour."""
    line: float = 0.05
    """Share of a row or column in that colour above which it belongs to a box."""
    filled: float = 0.995
    """Share of a box above which it is filled with the colour."""
    inside: float = 0.95
    """Share of the colour's pixels in the box above which they form one box."""
    box_side: int = 4
    """Shortest side of a box in pixels."""
    independence: float = 0.1
    """Difference, relative to the overall share, between the shares of missing pixels beside
    missing and beside known ones below which pixels are missing independently.
    """
    independence_floor: float = 0.1
    """Overall share that this difference is at least relative to."""
    lines: int = 8
    """Scattered pixels must lie in more rows, and more columns, than this."""


@dataclass(frozen=True)
class ProposalThresholds:
    """Which degradations the proposal undoes, and at which size; ``research/wide_blurs/compare.py``
    compares restorations at full and at reduced size.
    """

    longest_with_jpeg: int = 512
    """Longer side in pixels up to which JPEG is part of the proposal. Larger pictures are usually
    reduced for the computation, which averages its traces away.
    """
    smallest_side: int = 64
    """Smallest proposed longer side in pixels."""
    enlarged: float = 1.5
    """Smallest factor of enlargement that is undone."""
    rounded_up: float = 1.15
    """Largest factor by which an enlargement is rounded up to one of the operator's factors."""
    widest: float = 3.0
    """Standard deviation of an estimated blur in pixels above which a picture is restored at a
    reduced size: small errors in the estimate of a wider blur become waves and false strokes.
    Simulated ones are 0.4 dB worse at the reduced size, in 40 % of the time.
    """
    worthwhile: float = 0.8
    """Largest scale to which a picture is reduced."""


CONFIDENCE = ConfidenceThresholds()
CONTENT = ContentThresholds()
BLUR = BlurThresholds()
NOISE = NoiseThresholds()
COMPRESSION = CompressionThresholds()
CLIPPING = ClippingThresholds()
MISSING = MissingThresholds()
PROPOSAL = ProposalThresholds()
