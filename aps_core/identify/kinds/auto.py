"""The degradation is unknown: it is diagnosed from the upload."""

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
        """The diagnosis's proposal, with its blur measured more closely in the spectrum. If the
        camera shook, the shape of the blur is searched.

        Raises:
            NothingToRestore: there is nothing that an operator describes, or the camera shook and
                the blur's shape was not found.
        """

        diagnosis = examine(search.upload)
        if diagnosis.shaken:
            searched = Blind(method="free_kernel").explained(search, diagnosis)
            return searched.model_copy(update={"asked": self.type})
        return refined(proposed(diagnosis, search), diagnosis, search)


def proposed(diagnosis: Diagnosis, search: Search) -> Found:
    """What a diagnosis can undo without a search.

    Raises:
        NothingToRestore: there is nothing that an operator describes.
    """

    found = found_by(diagnosis, Auto.model_fields["type"].default, search.size, search.working_size)
    if found is None:
        raise NothingToRestore(refusal(diagnosis))
    return found


def refusal(diagnosis: Diagnosis) -> str:
    """Why a diagnosis proposes no operator, and what to do.

    Denoising a picture with nothing wrong would only replace its details by invented ones.
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
