"""Operator ``auto``: the degradation is unknown and is diagnosed from the upload."""

from __future__ import annotations

from typing import Literal

from aps_core.errors import NothingToRestore
from aps_core.identify.blind.refine import refined
from aps_core.identify.diagnosis import Diagnosis, Found, examine, found_by
from aps_core.identify.kinds.blind import Blind
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.identify.search import Search


class Auto(UnknownOperator):
    """Unknown: the upload is diagnosed, and what seems to have happened to it is undone."""

    type: Literal["auto"] = "auto"

    def words(self) -> str:
        return "what the diagnosis finds"

    def find(self, search: Search) -> Found:
        """The operator that the diagnosis proposes, with its blur refined from the spectrum. If the
        camera shook, a kernel of any shape is estimated.

        Raises:
            NothingToRestore: no operator describes what was found, or the camera shook and no
                kernel was found.
        """

        diagnosis = examine(search.upload)
        if diagnosis.shaken:
            searched = Blind(method="free_kernel").explained(search, diagnosis)
            return searched.model_copy(update={"asked": self.type})
        return refined(proposed(diagnosis, search), diagnosis, search)


def proposed(diagnosis: Diagnosis, search: Search) -> Found:
    """The operator that a diagnosis proposes without a search.

    Raises:
        NothingToRestore: no operator describes what was found.
    """

    found = found_by(diagnosis, Auto.model_fields["type"].default, search.size, search.working_size)
    if found is None:
        raise NothingToRestore(refusal(diagnosis))
    return found


def refusal(diagnosis: Diagnosis) -> str:
    """Message for a diagnosis that proposes no operator: the reason, and what to do.

    Denoising an intact picture would only replace its details with invented ones.
    """
    if diagnosis.wrong:
        return (
            f"{diagnosis.summary} 'auto' knows no operator that undoes this; name one, with the"
            " mask or the strength it needs."
        )
    return (
        f"{diagnosis.summary} There is nothing to restore. To restore it anyway, name the operator,"
        " for example 'denoise'."
    )
