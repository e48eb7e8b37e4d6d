"""Operator ``blind_blur``: a blur that is estimated from the upload."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aps_core.errors import InvalidSpec, NothingToRestore
from aps_core.identify.blind.effort import KERNEL_SEARCH, SIDE, Effort
from aps_core.identify.blind.families import FAMILIES, Family, Parameters
from aps_core.identify.blind.refine import refined, rounding_of
from aps_core.identify.blind.thresholds import KERNEL, MOVEMENT
from aps_core.identify.diagnosis import Diagnosis, Found, examine
from aps_core.identify.diagnosis.found import BlurSearch, KernelSearch
from aps_core.identify.diagnosis.propose import least_confidence
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.identify.search import Search
from aps_core.operators.base import OperatorSpec
from aps_core.operators.kernel_blur import KernelBlur

if TYPE_CHECKING:
    from aps_core.identify.blind.em import Estimate

Kind = Literal["gaussian", "defocus", "motion"]

UNGUIDED = 2.0
"""Standard deviation in pixels of the blur from which the search starts if none was diagnosed."""
EVERYWHERE = 1.5
"""Reach of a search from a direction or size that was not diagnosed."""
PHOTOGRAPH = (
    "The blur's shape: on photographs, a free kernel is estimated only if the diagnosis finds that"
    " the camera shook."
)
UNSUPPORTED = "the picture does not support a free kernel."


class UnknownBlur(UnknownOperator):
    """A blur, the strength of which is estimated from the most detailed part of the upload."""

    kind: Kind | Literal["auto"] = Field(
        "auto",
        description=(
            "Kind of the blur: soft, out of focus, or a straight motion; 'auto': the kind that the"
            " diagnosis finds."
        ),
    )
    method: Literal["spectrum", "em", "free_kernel"] = Field(
        "spectrum",
        description=(
            "'spectrum': integrates over all pictures whose spectrum falls as those of photographs"
            " do, in about a second; 'em': expectation-maximisation over short restorations by the"
            " prior; 'free_kernel': by 'spectrum' first, then a kernel of any shape, such as that"
            " of a shaken camera, by expectation-maximisation over the picture's edges; on"
            " photographs only if the diagnosis finds that the camera shook. If the picture does"
            " not support such a kernel, the first estimate is used."
        ),
    )
    chains: int = Field(
        3,
        ge=2,
        le=4,
        description=(
            "'em': restorations drawn in every iteration; 'free_kernel': starts of the search."
        ),
        json_schema_extra={"x-when": {"method": ["em", "free_kernel"]}},
    )
    iterations: int = Field(
        3,
        ge=2,
        le=20,
        description="Times that the blur is estimated, each more finely.",
        json_schema_extra={"x-when": {"method": ["spectrum", "em"]}},
    )

    @property
    def effort(self) -> Effort:
        """Number of chains and iterations of the search."""
        return Effort(self.chains, self.iterations)

    def token_passes(self, stride: int) -> int:
        """Decoder evaluations of the examined part times its number of tokens."""
        decodes = {"spectrum": 0, "em": self.effort.decodes, "free_kernel": KERNEL_SEARCH}
        return int(decodes[self.method] * math.ceil(SIDE / stride) ** 2)

    def blur(self, search: Search, diagnosis: Diagnosis) -> Found:
        """The estimated blur, or the diagnosed one if the estimate does not converge or, on a page
        or screen, ends far from the diagnosis.

        Raises:
            NothingToRestore: the diagnosis finds no blur, and none was estimated.
            InvalidSpec: the prior does not generate pictures.
        """
        if self.method == "em" and search.engine is None:
            raise InvalidSpec(f"The operator '{self.type}' needs a registered prior.")
        if self.method == "free_kernel":
            return self._of_any_shape(diagnosis, search)
        return self._of_a_family(diagnosis, search)

    def _of_any_shape(self, diagnosis: Diagnosis, search: Search) -> Found:
        """A kernel of any shape if the picture supports it, else a parametric blur.

        Raises:
            NothingToRestore: neither was found.
        """
        from aps_core.identify.blind.kernel_search import kernel_of

        if not shape_is_searched(diagnosis):
            known = self._of_a_family(diagnosis, search)
            return known.model_copy(update={"unsure": (*known.unsure, PHOTOGRAPH)})
        family: Found | None = None
        with suppress(NothingToRestore):
            family = self._of_a_family(diagnosis, search)
        start = family.operator if family else FAMILIES["gaussian"].blur((UNGUIDED,))
        estimate = kernel_of(
            search.upload.image.convert("RGB"),
            start,
            chains=self.chains,
            sigma=search.sigma,
            rounding=rounding_of(diagnosis),
            on_inner=search.on_inner,
        )
        kernel_search = KernelSearch.of(estimate)
        if kernel_search.support > 0:
            kernel = KernelBlur(kernel=kernel_search.kernel)
            return Found(
                asked=self.type,
                operator=kernel,
                text=f"Estimated from the picture's edges by {self.chains} searches, whose results"
                f" differ by {kernel_search.spread:.0%}: {kernel.words()}. {diagnosis.summary}",
                confidence="not sure" if kernel_search.spread > KERNEL.spread else "fairly sure",
                unsure=tuple(diagnosis.unsure),
                search=family and family.search,
                kernel_search=kernel_search,
            )
        if family is None:
            raise NothingToRestore(f"{diagnosis.summary} No blur was found: {UNSUPPORTED}")
        unsure = (*family.unsure, f"The blur's shape: {UNSUPPORTED}")
        return family.model_copy(update={"unsure": unsure, "kernel_search": kernel_search})

    def _of_a_family(self, diagnosis: Diagnosis, search: Search) -> Found:
        """A blur of the requested or diagnosed kind; raises as :meth:`blur`."""
        from aps_core.identify.blind.photograph import blur_of

        values = diagnosis.blur
        kind = values.get("family") if self.kind == "auto" else self.kind
        if kind == "shaken":
            raise NothingToRestore(
                f"{diagnosis.summary} Such a blur is of no known kind; to look for its shape,"
                " choose the 'method' 'free_kernel'."
            )
        if kind is None:
            raise NothingToRestore(
                f"{diagnosis.summary} No blur was found; to look for one anyway, name its 'kind',"
                " or for a page choose the 'method' 'free_kernel'."
            )
        family, rounding = FAMILIES[kind], rounding_of(diagnosis)
        guess, widest = first_guess(family, values)
        if self.method != "em" and diagnosis.shows_document and values.get("family") == kind:
            return self._near_diagnosis(diagnosis, family.blur(guess), search)
        estimate = blur_of(
            search.upload.image.convert("RGB"),
            family,
            guess,
            search.engine if self.method == "em" else None,
            self.effort,
            widest=widest,
            sigma=search.sigma,
            rounding=rounding,
            seed=search.seed,
            on_inner=search.on_inner,
        )
        if rounding and values and family.distance(guess, estimate.parameters) > MOVEMENT.reach:
            # JPEG hides the zeros of a movement's spectrum and adds others
            estimate = replace(estimate, converged=False)
        found = self._found(diagnosis, family, guess if values else None, estimate)
        return found.at_resolved_size(search.size)

    def _near_diagnosis(self, diagnosis: Diagnosis, blur: OperatorSpec, search: Search) -> Found:
        """The diagnosed blur of a page or screen, refined if the spectrum confirms it. The spectrum
        of text does not fall off like that of photographs, so a wider search ends at wrong sizes
        (``research/blind/compare.py``).
        """

        found = Found(
            asked=self.type,
            operator=blur,
            text=f"{diagnosis.summary} Taken as {blur.words()}.",
            confidence=least_confidence(diagnosis.findings, search.size),
            unsure=tuple(diagnosis.unsure),
        )
        return refined(found.at_resolved_size(search.size), diagnosis, search)

    def _source(self, estimate: Estimate) -> str:
        if self.method != "em":
            return "the picture's spectrum"
        return f"{self.chains} restorations that differ by {estimate.deviation:.0%}"

    def _found(
        self, diagnosis: Diagnosis, family: Family, guess: Parameters | None, estimate: Estimate
    ) -> Found:

        if not estimate.converged and guess is None:
            raise NothingToRestore(
                f"{diagnosis.summary} No blur was found: the estimate did not converge."
            )
        used = estimate.parameters if estimate.converged or guess is None else guess
        operator = family.blur(used)
        diagnosed = "The diagnosis found no blur." if guess is None else diagnosis.summary
        text = (
            f"Estimated from {self._source(estimate)}: {operator.words()}. {diagnosed}"
            if estimate.converged
            else f"The estimate of the blur did not converge, so the diagnosis is used:"
            f" {operator.words()}. {diagnosed}"
        )
        return Found(
            asked=self.type,
            operator=operator,
            text=text,
            confidence="fairly sure" if estimate.converged else "not sure",
            unsure=tuple(diagnosis.unsure),
            search=BlurSearch.of(family, estimate),
        )


class BlindBlur(UnknownBlur):
    """Blurred by an unknown amount: the strength that explains the most detailed part best is
    estimated first.
    """

    type: Literal["blind_blur"] = "blind_blur"

    def words(self) -> str:
        return "a blur of unknown strength"

    def find(self, search: Search) -> Found:
        """See :meth:`UnknownBlur.blur`."""

        return self.blur(search, examine(search.upload))


def shape_is_searched(diagnosis: Diagnosis) -> bool:
    """Whether 'free_kernel' estimates a kernel of any shape: on documents, and on photographs of a
    shaken camera. On other photographs, even sharp ones, the evidence of the edges favours false
    kernels (``research/free_kernels/sharp.py``).
    """
    return diagnosis.shows_document or diagnosis.shaken


def first_guess(family: Family, values: Mapping[str, Any]) -> tuple[Parameters, float]:
    """Start and first reach of the search: the diagnosed blur if it is of the family, else a blur
    of the same width.
    """
    from aps_core.identify.blind.em import WIDEST

    if all(name in values for name in family.names):
        return tuple(values[name] for name in family.names), WIDEST
    deviation = UNGUIDED
    if values and values["family"] in FAMILIES:
        other = FAMILIES[values["family"]]
        deviation = values[other.size] * other.deviation
    size = deviation / family.deviation
    return ((size,) if family.angle is None else (size, 90.0)), EVERYWHERE
