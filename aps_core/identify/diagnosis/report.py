"""Data of a diagnosis, with its findings in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from aps_core.registry import Config

Confidence = Literal["sure", "fairly sure", "not sure"]
CONFIDENCES: tuple[Confidence, ...] = ("not sure", "fairly sure", "sure")
"""From the lowest to the highest."""
Kind = Literal["blur", "enlarged", "noise", "jpeg", "clipped", "missing", "content", "size"]


class Finding(Config):
    """One thing found about a picture."""

    kind: Kind = Field(description="What it is about.")
    wrong: bool = Field(description="Whether it is a degradation; 'content' and 'size' are not.")
    text: str = Field(description="The finding in plain words.")
    confidence: Confidence = Field(description="How certain it is.")
    values: dict[str, Any] = Field(description="Numbers behind the text; lengths in pixels.")

    def sentence(self) -> str:
        """Text of the finding, followed by its confidence unless that is 'sure'."""
        return self.text if self.confidence == "sure" else f"{self.text} ({self.confidence})"


class Diagnosis(Config):
    """What seems to have happened to a picture, and how to restore it."""

    width: int = Field(description="Width of the picture in pixels.")
    height: int = Field(description="Height of the picture in pixels.")
    summary: str = Field(description="The degradations in plain words.")
    findings: list[Finding] = Field(description="Everything found, also what is no degradation.")
    unsure: list[str] = Field(description="What is uncertain, and why.")
    proposal: dict[str, Any] | None = Field(
        description="Fields of a restore job for this picture; null if nothing is to be restored."
    )

    @property
    def wrong(self) -> list[Finding]:
        """Findings that are degradations."""
        return [finding for finding in self.findings if finding.wrong]

    @property
    def blur(self) -> Mapping[str, Any]:
        """Family and parameters of the blur; empty if there is none."""
        return next((each.values for each in self.findings if each.kind == "blur"), {})

    @property
    def shaken(self) -> bool:
        """See :func:`shaken`."""
        return shaken(self.findings)

    @property
    def shows_document(self) -> bool:
        """Whether the picture shows a document, page or screen, at least *fairly sure*."""
        return any(
            each.kind == "content" and each.values["document"] and each.confidence != "not sure"
            for each in self.findings
        )

    def proposing(self, prior: str | None) -> Diagnosis:
        """Copy with ``prior`` set in the proposal, if there is one."""
        if prior is None or self.proposal is None:
            return self
        return self.model_copy(update={"proposal": {**self.proposal, "prior": prior}})


def shaken(findings: list[Finding]) -> bool:
    """Whether the blur is that of a shaken camera, which has no parametric family."""
    return any(each.kind == "blur" and each.values["family"] == "shaken" for each in findings)


def summary_of(findings: list[Finding]) -> str:
    """The degradations in one sentence."""
    wrong = [finding.sentence() for finding in findings if finding.wrong]
    if not wrong:
        return "Nothing seems to be wrong with this picture."
    text = "; ".join(wrong)
    return f"{text[0].upper()}{text[1:]}."
