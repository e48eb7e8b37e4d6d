"""Operator identified from an upload, and how it was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import Field

from aps_core.identify.diagnosis.propose import least_confidence, resolved_side, without_search
from aps_core.identify.diagnosis.report import Confidence, Diagnosis
from aps_core.operators import AnyOperator, OperatorSpec
from aps_core.operators.base import KernelRows
from aps_core.registry import Config

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.identify.blind.em import Estimate
    from aps_core.identify.blind.families import Family
    from aps_core.identify.blind.kernel_search import KernelEstimate


class BlurSearch(Config):
    """How a blur's parameters were estimated."""

    parameters: dict[str, float] = Field(description="The estimate, in pixels and degrees.")
    deviation: float = Field(
        description="Root mean square deviation over the chains, as a share of the size."
    )
    chains: list[dict[str, float]] = Field(description="What each chain alone says.")
    path: list[dict[str, float]] = Field(description="Estimates from the start to the end.")
    converged: bool = Field(description="Whether the estimate settled and the chains agree.")

    @classmethod
    def of(cls, family: Family, estimate: Estimate) -> Self:
        """Serialisable form of an estimate."""
        return cls(
            parameters=family.named(estimate.parameters),
            deviation=round(estimate.deviation, 4),
            chains=[family.named(each) for each in estimate.chains],
            path=[family.named(each) for each in estimate.path],
            converged=estimate.converged,
        )


class KernelSearch(Config):
    """How a kernel of any shape was estimated."""

    kernel: KernelRows = Field(description="The estimate, in pixels of the upload.")
    spread: float = Field(
        description="Mean difference of the kernels of other starts: 1 minus their correlation."
    )
    path: list[KernelRows] = Field(
        description="Kernels from the start to the end, first at a reduced resolution."
    )
    support: float = Field(
        description=(
            "By how much the logarithm of its evidence exceeds that of the parametric blur, the"
            " price of its weights and a margin; below 0, the parametric blur is used."
        )
    )

    @classmethod
    def of(cls, estimate: KernelEstimate) -> Self:
        """Serialisable form of an estimate."""
        return cls(
            kernel=rows_of(estimate.kernel_KK),
            spread=round(estimate.spread, 4),
            path=[rows_of(each_KK) for each_KK in estimate.path],
            support=round(estimate.support, 1),
        )


def rows_of(kernel_KK: Tensor) -> KernelRows:
    """Rows of a kernel's weights, rounded to five decimals."""
    rows = kernel_KK.double().cpu().round(decimals=5).tolist()
    return tuple(tuple(row) for row in rows)


class Found(Config):
    """The operator that a job used in place of an unknown one. Part of the result and of
    checkpoints, so that a resumed run uses the same operator.
    """

    asked: str = Field(description="Type of the unknown operator of the job: 'auto', ...")
    operator: AnyOperator = Field(description="The operator used.")
    working_size: int | None = Field(
        None, description="Longer side of the restored picture that the operator needs, if any."
    )
    peak: float | None = Field(
        None, description="Mean photon count of a white pixel, if the noise is that of photons."
    )
    text: str = Field(description="What was found, and the operator, in plain words.")
    confidence: Confidence = Field(description="Lowest confidence of the findings used.")
    unsure: tuple[str, ...] = Field((), description="What is uncertain, and why.")
    search: BlurSearch | None = Field(None, description="How the blur was estimated, if it was.")

    kernel_search: KernelSearch | None = Field(
        None, description="How a kernel of any shape was estimated, if it was."
    )

    def notes(self) -> list[str]:
        """Messages for the caller."""
        notes = [self.text, *(f"Not certain: {note}" for note in self.unsure)]
        enlarged = any(each.type == "super_resolution" for each in self.operator.each)
        if self.working_size is not None and not enlarged:
            notes.append("Restored at a reduced size: so wide a blur leaves no finer detail.")
        return notes

    def at_resolved_size(self, size: tuple[int, int]) -> Self:
        """Copy with the working size that the blur leaves of a picture (width, height)."""
        side = resolved_side(self.operator.model_dump(), size)
        return self.model_copy(update={"working_size": side})


def found_by(
    diagnosis: Diagnosis,
    asked: str,
    size: tuple[int, int] | None = None,
    longest: int | None = None,
) -> Found | None:
    """Operator that a diagnosis proposes without a search; None if it proposes none.

    Args:
        diagnosis: that of the upload.
        asked: the unknown operator's type.
        size: width and height of the restored part of the upload; None for all of it.
        longest: the job's ``working_size``, if it has one.
    """
    size = size or (diagnosis.width, diagnosis.height)
    proposed = without_search(diagnosis.findings, size, longest)
    if proposed is None:
        return None
    fields = proposed["operator"]
    operator = OperatorSpec.named(fields["type"]).model_validate(fields)
    return Found(
        asked=asked,
        operator=operator,
        working_size=proposed.get("working_size"),
        peak=proposed.get("peak"),
        text=f"{diagnosis.summary} Taken as {operator.words()}.",
        confidence=least_confidence(diagnosis.findings, size),
        unsure=tuple(diagnosis.unsure),
    )
