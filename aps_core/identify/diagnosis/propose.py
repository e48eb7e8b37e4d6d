"""Restore job proposed from the findings of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.diagnosis.report import CONFIDENCES, Confidence, Finding, shaken
from aps_core.identify.diagnosis.thresholds import PROPOSAL
from aps_core.operators.jpeg import averaged

FINER = {"sigma": 1.4, "radius": 0.8}
"""Factor, per pixel of blur, by which a picture can be reduced without losing detail: of the lost
frequencies, the blur leaves less than a tenth of the contrast.
"""
FACTORS = (2, 4, 8)
"""Factors of the proposed super-resolution."""


def lossless_side(findings: list[Finding], size: tuple[int, int]) -> int:
    """Longer side in pixels to which the picture can be reduced without losing detail."""
    step = 1.0
    for finding in findings:
        if finding.kind == "enlarged":
            step = max(step, finding.values["factor"])
        for name, finer in FINER.items() if finding.kind == "blur" else ():
            step = max(step, finer * finding.values.get(name, 0.0))
    return max(min(PROPOSAL.smallest_side, max(size)), round(max(size) / step))


def resolved_side(operator: Mapping[str, Any], size: tuple[int, int]) -> int | None:
    """Longer side in pixels to which a picture is reduced to undo an estimated blur; None if it
    keeps its size. See :attr:`ProposalThresholds.widest`.

    Args:
        operator: in JSON, with lengths in pixels of the picture.
        size: width and height of the picture.
    """

    stages = operator.get("stages", [operator])
    if any(stage["type"] == "super_resolution" for stage in stages):
        return None  # super-resolution sets the size
    wide = [
        stage[family.size] * family.deviation
        for stage in stages
        for family in FAMILIES.values()
        if stage["type"] == family.operator
    ]
    scale = PROPOSAL.widest / max(wide, default=PROPOSAL.widest)
    if scale > PROPOSAL.worthwhile:
        return None
    return max(min(PROPOSAL.smallest_side, max(size)), round(max(size) * scale))


def proposal(findings: list[Finding], size: tuple[int, int]) -> dict[str, Any] | None:
    """Fields of a restore job; None if no operator describes what was found."""
    return {"operator": dict(SEARCHED)} if shaken(findings) else without_search(findings, size)


def without_search(
    findings: list[Finding], size: tuple[int, int], longest: int | None = None
) -> dict[str, Any] | None:
    """Fields of a restore job for all findings but the blur of a shaken camera; None if no operator
    describes them.

    Args:
        findings: those of the upload.
        size: width and height of the restored picture.
        longest: the job's own ``working_size``, if it has one; reducing an enlarged picture to it
            undoes part of the enlargement.
    """
    photons = _photons(findings)
    scale = min(1.0, (longest or max(size)) / max(size))
    undone = _undone(findings, size, scale)
    named = [_operator(finding, size, scale) for finding in undone]
    operators = [each for each in named if each not in (None, DENOISE)]
    if not operators:
        return {"operator": dict(DENOISE), **photons} if undone else None
    operators.sort(key=lambda operator: ORDER.index(operator["type"]))
    chosen = operators[0] if len(operators) == 1 else {"type": "compose", "stages": operators}
    fields: dict[str, Any] = {"operator": chosen, **photons}
    if any(operator["type"] == "super_resolution" for operator in operators):
        # the upload is reduced to its real resolution and restored at its present size
        fields["working_size"] = max(size)
    elif (side := resolved_side(chosen, size)) is not None:
        fields["working_size"] = side
    return fields


def _photons(findings: list[Finding]) -> dict[str, Any]:
    """Fields of photon noise; empty without it."""
    counts = [finding.values.get("peak") for finding in findings if finding.kind == "noise"]
    return {"noise": "poisson", "peak": counts[0]} if any(counts) else {}


def least_confidence(findings: list[Finding], size: tuple[int, int]) -> Confidence:
    """Lowest confidence among the findings that the proposal undoes; 'sure' if there are none."""
    words = [finding.confidence for finding in _undone(findings, size)]
    return min(words, key=CONFIDENCES.index, default="sure")


def _undone(findings: list[Finding], size: tuple[int, int], scale: float = 1.0) -> list[Finding]:
    """Findings that the proposal undoes: those with an operator, else the noise."""
    wrong = [finding for finding in findings if finding.wrong]
    described = [finding for finding in wrong if _operator(finding, size, scale) is not None]
    return described or [finding for finding in wrong if finding.kind == "noise"]


DENOISE = {"type": "denoise"}
SEARCHED = {"type": "blind", "method": "free_kernel"}
"""Operator that estimates a kernel of any shape."""
ORDER = (
    *("gaussian_blur", "defocus_blur", "linear_motion_blur", "hdr"),
    *("super_resolution", "jpeg", "inpainting"),
)
"""Assumed order of the degradations, first to last."""


def _operator(finding: Finding, size: tuple[int, int], scale: float) -> dict[str, Any] | None:
    """Operator for a finding, in a picture first reduced by ``scale``; None if there is none."""
    values = finding.values
    match finding.kind:
        case "blur" if values["family"] != "shaken":
            names = {"gaussian": "gaussian_blur", "defocus": "defocus_blur"}
            fields = {name: value for name, value in values.items() if name != "family"}
            return {"type": names.get(values["family"], "linear_motion_blur"), **fields}
        case "enlarged" if (left := scale * values["factor"]) >= PROPOSAL.enlarged:
            fitting = [each for each in FACTORS if each <= PROPOSAL.rounded_up * left]
            return {"type": "super_resolution", "factor": max(fitting, default=FACTORS[0])}
        case "jpeg" if max(size) <= PROPOSAL.longest_with_jpeg:
            if averaged(scale):
                return DENOISE
            return {"type": "jpeg", "quality": values["quality"]}
        case "missing" if values["shape"] == "alpha":
            return {"type": "inpainting", "mask": "upload"}
    return None
