"""Examination of a picture: all findings and their confidence, from a few crops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aps_core.identify.diagnosis import areas, content, crops, grain, jpeg
from aps_core.identify.diagnosis.blur import Blur, estimate
from aps_core.identify.diagnosis.propose import lossless_side, proposal
from aps_core.identify.diagnosis.report import Confidence, Diagnosis, Finding, summary_of
from aps_core.identify.diagnosis.thresholds import (
    BLUR,
    CLIPPING,
    COMPRESSION,
    CONFIDENCE,
    CONTENT,
    NOISE,
)
from aps_core.identify.diagnosis.words import NAMES, blur_finding, confidence_word, content_finding
from aps_core.imaging.images import MAX_PIXELS, Picture, mask_band, open_image

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]


def diagnose(data: bytes, max_pixels: int = MAX_PIXELS) -> Diagnosis:
    """Diagnoses an encoded picture (PNG, JPEG or WebP).

    Raises:
        ImageRejected, ImageTooLarge: see :func:`aps_core.imaging.images.open_image`.
    """
    return examine(open_image(data, max_pixels))


def examine(picture: Picture) -> Diagnosis:
    """Diagnoses a picture."""
    return _Examination(picture).diagnosis()


def shows_text(picture: Picture) -> bool:
    """Whether a picture is probably a document, page or screen."""
    return _Examination(picture).document() > CONFIDENCE.fairly_sure


@dataclass
class _Examination:
    picture: Picture

    def __post_init__(self) -> None:
        self.image = self.picture.rgb()
        self.boxes = crops.detailed(self.image)
        self.rgb = [np.asarray(self.image.crop(box)) for box in self.boxes]
        self.grey = [crops.luminance(part) for part in self.rgb]
        self.unsure: list[str] = []

    def diagnosis(self) -> Diagnosis:
        """Diagnosis with all findings, in the order of the report."""
        blur, shown = self._blur(), self.document()
        document = shown > CONFIDENCE.fairly_sure
        found = [
            *self._sharpness(blur),
            *self._compression(),
            *self._noise(document),
            *self._clipping(document),
            *self._missing(document),
            content_finding(shown),
        ]
        width, height = self.picture.width, self.picture.height
        found.append(self._size(found))
        return Diagnosis(
            width=width,
            height=height,
            summary=summary_of(found),
            findings=found,
            unsure=self.unsure,
            proposal=proposal(found, (width, height)),
        )

    def document(self) -> float:
        """Probability that the picture shows a document, page or screen; 0.5 if it has a single
        colour or is too low or narrow for letters.
        """
        if self._flat or min(self.image.size) < CONTENT.letter:
            return 0.5
        shown, blur = self.rgb, self._estimated
        if blur is None:  # too small, so enlarge it: that hardly changes the answer
            times = -(-crops.SMALLEST // min(self.image.size))
            shown = [
                np.asarray(part.resize((times * part.width, times * part.height)))
                for part in map(Image.fromarray, self.rgb)
            ]
            blur = estimate([crops.luminance(part) for part in shown])
        # average the two logits: they err on different pictures
        return 1 / (1 + math.exp(-(blur.document + content.document(shown)) / 2))

    @cached_property
    def _estimated(self) -> Blur | None:
        """Blur estimated at full resolution; None if the picture is too small."""
        return None if self._small else estimate(self.grey)

    @property
    def _small(self) -> bool:
        return min(self.image.size) < crops.SMALLEST

    @property
    def _flat(self) -> bool:
        return max(float(part.std()) for part in self.grey) < CONTENT.flat

    def _blur(self) -> Blur | None:
        if self._flat:
            self.unsure.append("The picture has one colour only, so its sharpness is unknown.")
            return None
        if self._estimated is None:
            self.unsure.append("The picture is too small to tell its sharpness.")
            return None
        blur, image, zoom = self._estimated, self.image, 1
        from_size = BLUR.halved_from.get(blur.family, math.inf)
        while blur.size / zoom >= from_size and min(image.size) >= 2 * BLUR.smallest_side:
            image, zoom = image.reduce(2), 2 * zoom
            parts = [np.asarray(image.crop(box)) for box in crops.detailed(image)]
            coarse = estimate([crops.luminance(part) for part in parts])
            if coarse.family != blur.family:
                break
            blur = coarse.enlarged(zoom)
        return blur

    def _sharpness(self, blur: Blur | None) -> list[Finding]:
        factor = areas.repeated(self.rgb[0])
        if factor is not None:
            values = {"factor": factor, "filter": "nearest"}
            text = f"enlarged {factor} times by repeating pixels"
            return [
                Finding(kind="enlarged", wrong=True, text=text, confidence="sure", values=values)
            ]
        if blur is None:
            return []
        word = confidence_word(blur.confidence)
        if blur.family == "sharp":
            if word != "sure":
                self.unsure.append("It may be slightly blurred.")
            return []
        if blur.shares["sharp"] > BLUR.sharp:
            self.unsure.append("It may be slightly blurred.")
            return []
        if word == "not sure":
            others = sorted(blur.shares, key=lambda name: -blur.shares[name])[:2]
            self.unsure.append(f"The kind of blur: {NAMES[others[0]]} or {NAMES[others[1]]}.")
        return [blur_finding(blur, word)]

    def _compression(self) -> list[Finding]:
        quality, traces = self.picture.jpeg_quality, self._traces
        earlier = quality and traces and traces.quality < quality - COMPRESSION.better
        if quality is not None and not earlier:
            fine = quality >= COMPRESSION.fine_quality
            text = f"JPEG of quality {quality}"
            values = {"quality": quality, "from": "file"}
            return [
                Finding(kind="jpeg", wrong=not fine, text=text, confidence="sure", values=values)
            ]
        if traces is None:
            return []
        text = f"was once a JPEG of quality {traces.quality}"
        values = {"quality": traces.quality, "from": "pixels"}
        clear = confidence_word(min(1.0, traces.clearness + COMPRESSION.clearness_to_confidence))
        return [Finding(kind="jpeg", wrong=True, text=text, confidence=clear, values=values)]

    @cached_property
    def _traces(self) -> jpeg.Traces | None:
        return jpeg.traces(self.grey[0])  # a crop may start anywhere in the grid of blocks

    def _noise(self, document: bool) -> list[Finding]:
        impulses = float(np.mean([areas.impulses(part) for part in self.rgb]))
        if impulses > (NOISE.impulses_document if document else NOISE.impulses_photograph):
            text = f"{impulses:.1%} of the pixels are single black or white ones"
            values = {"kind": "impulses", "share": round(impulses, 4)}
            return [Finding(kind="noise", wrong=True, text=text, confidence="sure", values=values)]
        compressed = self.picture.jpeg_quality is not None or self._traces is not None
        measured = grain.measured(self.rgb, compressed)
        if measured is None:
            self.unsure.append("The noise: too few areas are neither black nor white.")
            return []
        sigma, peak = measured
        if sigma < NOISE.faint:
            return []
        if compressed:
            self.unsure.append("How strong the noise was before the JPEG compression.")
        strength = "strong noise" if sigma > NOISE.strong else "noise"
        text = f"{strength} of about {sigma * 127.5:.1f} grey levels"
        found: dict[str, str | float] = {"kind": "gaussian", "sigma": round(sigma, 4)}
        if peak is not None:
            text = f"photon noise, as of {peak:.0f} photons in white"
            found = {"kind": "photons", "sigma": round(sigma, 4), "peak": round(peak, 1)}
        return [
            Finding(kind="noise", wrong=True, text=text, confidence="fairly sure", values=found)
        ]

    def _clipping(self, document: bool) -> list[Finding]:
        if document:  # paper is white, ink is black
            return []
        white, black = areas.clipped(np.asarray(self._thumbnail()))
        share = white + black
        if share < CLIPPING.reported:
            return []
        text = f"{share:.0%} of the pixels are clipped to white or black"
        values = {"white": round(white, 4), "black": round(black, 4)}
        word: Confidence = "sure" if share > CLIPPING.sure else "fairly sure"
        return [
            Finding(
                kind="clipped",
                wrong=share > CLIPPING.wrong,
                text=text,
                confidence=word,
                values=values,
            )
        ]

    def _thumbnail(self) -> Image.Image:
        """Every n-th pixel, unchanged, so that neither side exceeds about a thousand."""
        step = max(1, max(self.image.size) // 512)
        return self.image if step == 1 else Image.fromarray(np.asarray(self.image)[::step, ::step])

    def _missing(self, document: bool) -> list[Finding]:
        if self.picture.has_alpha:
            share = float((np.asarray(mask_band(self.picture)) < 128).mean())
            if share > 0:
                text = f"{share:.0%} of the pixels are transparent"
                values = {"share": round(share, 4), "shape": "alpha"}
                return [
                    Finding(kind="missing", wrong=True, text=text, confidence="sure", values=values)
                ]
        found = areas.missing(np.asarray(self._thumbnail()))
        if found is None or (document and found.shape == "box"):  # pages have boxes of one colour
            return []
        text = f"{found.share:.0%} of the pixels seem to be missing"
        values = {"share": round(found.share, 4), "shape": found.shape, "colour": found.colour}
        return [
            Finding(kind="missing", wrong=True, text=text, confidence="fairly sure", values=values)
        ]

    def _size(self, found: list[Finding]) -> Finding:
        width, height = self.picture.width, self.picture.height
        side = lossless_side(found, (width, height))
        text = f"{width} x {height} pixels"
        if side < max(width, height):
            text += f"; reducing the longer side to {side} pixels loses no detail"
        else:
            text += "; any reduction loses detail"
        values = {"width": width, "height": height, "lossless_side": side}
        return Finding(kind="size", wrong=False, text=text, confidence="fairly sure", values=values)
