"""Estimate of a picture's blur: family, size, direction and confidence.

A small network reads the features of :mod:`aps_core.identify.diagnosis.features`. It was trained on
simulated degradations (``training/diagnosis``); its confidence is calibrated on withheld pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aps_core.identify.diagnosis import perceptron
from aps_core.identify.diagnosis.features import features

Array = NDArray[np.float64]
Family = Literal["sharp", "gaussian", "defocus", "motion", "enlarged", "shaken"]
FAMILIES: tuple[Family, ...] = ("sharp", "gaussian", "defocus", "motion", "enlarged", "shaken")
COUNT = len(FAMILIES)
SHARES = slice(COUNT)
SIZES = slice(COUNT, 2 * COUNT - 1)
DEVIATIONS = slice(2 * COUNT - 1, 3 * COUNT - 2)
DIRECTION = slice(3 * COUNT - 2, 3 * COUNT)
DOCUMENT = 3 * COUNT
ANSWERS = 3 * COUNT + 1
"""Outputs of the network: logits of the families, for all but "sharp" the logarithm of the size and
of its standard deviation, cosine and sine of twice a movement's direction, and the logit of a
document.
"""
NETWORK = "blur"

TOLERANCE, LEAST_TOLERANCE = 0.15, 0.3
"""Largest error of a correct size: as a share, or in pixels if that is more."""
ANGLE_TOLERANCE = 10.0
"""Largest error of a correct direction in degrees."""


@dataclass(frozen=True)
class Blur:
    """The most probable blur of a picture."""

    family: Family
    size: float
    """Width, radius or length in pixels, factor of enlargement, or the longer side in pixels of the
    curve of a shaken camera; 0 if sharp.
    """
    angle: float
    """Direction of a movement in degrees, counter-clockwise from the horizontal."""
    confidence: float
    """Estimated probability that family, size and direction are right; see :data:`TOLERANCE`.
    For a shaken camera, only that the family is right.
    """
    shares: dict[Family, float]
    """Probability of every family."""
    document: float
    """Logit of a document, page or screen, judged by the spectrum."""

    def enlarged(self, zoom: int) -> Blur:
        """The same blur in the pixels of a picture ``zoom`` times as large."""
        return replace(self, size=self.size * zoom)


def estimate(crops: list[Array]) -> Blur:
    """Blur of one picture, from crops (h, w) of its luminance, each at least 48 pixels a side."""
    return read(perceptron.answer(NETWORK, features(crops).vector()))


def read(answer: Array) -> Blur:
    """Converts one output of the network (ANSWERS,) to a blur."""
    net = perceptron.stored(NETWORK)
    logits = answer[SHARES] / net["temperature"]
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    best = int(shares.argmax())
    family, confidence, size = FAMILIES[best], float(shares[best]), 0.0
    cosine, sine = answer[DIRECTION]
    angle = math.degrees(math.atan2(sine, cosine) / 2) % 180
    if best:
        size = float(np.exp(answer[SIZES][best - 1]))
        spread = float(np.exp(np.clip(answer[DEVIATIONS][best - 1], -4, 2)))
        deviation = spread * float(net["widening"])
        allowed = max(TOLERANCE, LEAST_TOLERANCE / size)
    if best and family != "shaken":  # its kernel is estimated anyway, whatever the size
        confidence *= math.erf(math.log1p(allowed) / deviation / math.sqrt(2))
    if family == "motion":
        confidence *= min(1.0, math.hypot(cosine, sine))
    named = {name: float(share) for name, share in zip(FAMILIES, shares, strict=True)}
    return Blur(
        family=family,
        size=size,
        angle=angle,
        confidence=confidence,
        shares=named,
        document=float(answer[DOCUMENT]),
    )
