"""Findings about blur and content in plain words."""

from __future__ import annotations

from aps_core.identify.diagnosis.blur import Blur
from aps_core.identify.diagnosis.report import Confidence, Finding
from aps_core.identify.diagnosis.thresholds import CONFIDENCE, CONTENT

NAMES = {
    "sharp": "sharp",
    "gaussian": "soft",
    "defocus": "out of focus",
    "motion": "moved",
    "enlarged": "enlarged",
    "shaken": "shaken",
}


def confidence_word(confidence: float) -> Confidence:
    """Confidence word for an estimated probability."""
    if confidence >= CONFIDENCE.sure:
        return "sure"
    return "fairly sure" if confidence >= CONFIDENCE.fairly_sure else "not sure"


def content_finding(document: float) -> Finding:
    """Finding about the content, from the probability that the picture shows a document."""
    text = "a document, page or screen" if document > CONTENT.document else "a photograph"
    word = confidence_word(max(document, 1 - document))
    values = {"document": document > CONTENT.document}
    return Finding(kind="content", wrong=False, text=text, confidence=word, values=values)


def blur_finding(blur: Blur, word: Confidence) -> Finding:
    """Finding about an estimated blur with confidence ``word``."""
    size = round(blur.size, 2)
    shown = f"{blur.size:.1f}" if blur.size < 10 else f"{blur.size:.0f}"
    values: dict[str, float | str]
    if blur.family == "enlarged":
        text, values = f"enlarged about {shown} times", {"factor": size, "filter": "smooth"}
        return Finding(kind="enlarged", wrong=True, text=text, confidence=word, values=values)
    match blur.family:
        case "gaussian":
            text, values = f"soft: a Gaussian blur of about {shown} pixels", {"sigma": size}
        case "defocus":
            text, values = f"out of focus by about {shown} pixels", {"radius": size}
        case "shaken":
            text = f"blurred by a shaken camera, along a curve of about {shown} pixels"
            values = {"extent": size}
        case _:
            angle = round(blur.angle) % 180
            text = f"blurred by motion, about {shown} pixels at {angle}°"
            values = {"length": size, "angle": float(angle)}
    return Finding(
        kind="blur",
        wrong=True,
        text=text,
        confidence=word,
        values={"family": blur.family, **values},
    )
