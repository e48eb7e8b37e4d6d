"""Operator ``blind``: an unknown blur together with other unknown degradations."""

from __future__ import annotations

from typing import Literal

from aps_core.errors import NothingToRestore
from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.diagnosis import Diagnosis, Found, examine, found_by
from aps_core.identify.kinds.blind_blur import UnknownBlur
from aps_core.identify.search import Search
from aps_core.operators.base import OperatorSpec
from aps_core.operators.compose import Compose


class Blind(UnknownBlur):
    """Blurred, and perhaps also reduced and compressed, by unknown amounts: the blur is estimated
    as by 'blind_blur', the rest is what the diagnosis finds.
    """

    type: Literal["blind"] = "blind"

    def words(self) -> str:
        return "an unknown blur, reduction, JPEG compression and noise"

    def find(self, search: Search) -> Found:
        """The estimated blur followed by the other diagnosed degradations; the diagnosis alone if
        there is no blur.

        Raises:
            NothingToRestore: no operator describes what was found, or the camera shook and no
                kernel was found.
            InvalidSpec: the prior does not generate pictures.
        """

        return self.explained(search, examine(search.upload))

    def explained(self, search: Search, diagnosis: Diagnosis) -> Found:
        """:meth:`find` for a given diagnosis of the upload."""

        diagnosed = found_by(diagnosis, self.type, search.size, search.working_size)
        try:
            blurred = self.blur(search, diagnosis)
        except NothingToRestore:
            if diagnosed is None or diagnosis.blur:
                raise
            return diagnosed.model_copy(update={"text": f"{diagnosed.text} No blur was found."})
        others = self._others(diagnosis, diagnosed)
        if not others:
            return blurred
        operator = Compose(stages=[blurred.operator, *others])
        text = f"{blurred.text} Altogether: {operator.words()}."
        enlarged = any(stage.type == "super_resolution" for stage in others)
        size = diagnosed.working_size if diagnosed and enlarged else blurred.working_size
        return blurred.model_copy(update={"operator": operator, "text": text, "working_size": size})

    def _others(self, diagnosis: Diagnosis, diagnosed: Found | None) -> list[OperatorSpec]:
        """Operators of the diagnosed degradations other than the blur. If the request names a kind
        of blur, an apparent enlargement is dropped: it looks the same as a blur.
        """

        if diagnosed is None:
            return []
        dropped = {"denoise", *(family.operator for family in FAMILIES.values())}
        if not diagnosis.blur:
            dropped.add("super_resolution")
        return [stage for stage in diagnosed.operator.each if stage.type not in dropped]
