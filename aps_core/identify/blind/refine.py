"""Refinement of a diagnosed movement from the picture's spectrum and edges."""

from __future__ import annotations

from dataclasses import replace

from aps_core.identify.blind.effort import Effort
from aps_core.identify.blind.families import FAMILIES
from aps_core.identify.blind.thresholds import MOVEMENT
from aps_core.identify.diagnosis import Diagnosis, Found
from aps_core.identify.diagnosis.found import BlurSearch
from aps_core.identify.search import Search
from aps_core.operators.compose import with_stage
from aps_core.operators.jpeg import FINEST, JPEG

DISTURBING = {"enlarged", "missing"}
"""Findings with which a movement is not refined: the likelihood assumes that noise and the rounding
of JPEG are the only other degradations.
"""
UNCONFIRMED = "The blur's size: the picture's spectrum does not confirm it."
SHAKEN = (
    "The blur's kind: if the camera shook, try a blur of any shape (operator 'blind_blur', method"
    " 'free_kernel')."
)
EFFORT = Effort(chains=2, iterations=3)


def refined(found: Found, diagnosis: Diagnosis, search: Search) -> Found:
    """``found`` with its movement refined from the picture's spectrum and, on a page or screen,
    from its edges. Takes about one second, or five with edges.

    Returns ``found`` unchanged if there is no movement (the diagnosis is more accurate than the
    spectrum for a Gaussian or a disc) or if something :data:`DISTURBING` was found. An estimate
    from the spectrum that does not converge near the diagnosis is dropped, with a note in
    ``unsure``.

    Args:
        found: what ``diagnosis`` proposes.
        diagnosis: that of the upload.
        search: the upload and its noise, if known.
    """
    from aps_core.identify.blind.movement import movement_of
    from aps_core.identify.blind.photograph import blur_of

    values = diagnosis.blur
    if values.get("family") != "motion" or DISTURBING & {each.kind for each in diagnosis.wrong}:
        return found
    family = FAMILIES["motion"]
    guess = tuple(values[name] for name in family.names)
    image = search.upload.image.convert("RGB")
    estimate = blur_of(
        image,
        family,
        guess,
        None,
        EFFORT,
        widest=MOVEMENT.reach,
        sigma=search.sigma,
        rounding=rounding_of(diagnosis),
    )
    confirmed = estimate.converged and family.distance(guess, estimate.parameters) <= MOVEMENT.reach
    measured, where = estimate.parameters if confirmed else guess, "spectrum"
    if diagnosis.shows_document:
        measured = movement_of(
            image,
            [measured, guess],
            MOVEMENT.reach_confirmed if confirmed else MOVEMENT.reach_unconfirmed,
            sigma=search.sigma,
            rounding=rounding_of(diagnosis),
        )
        estimate = replace(estimate, parameters=measured, path=[*estimate.path, measured])
        where = "spectrum and edges" if confirmed else "edges"
    changes: dict[str, object] = {"search": BlurSearch.of(family, estimate)}
    if not confirmed:
        hints = (UNCONFIRMED, SHAKEN) if diagnosis.shows_document else (UNCONFIRMED,)
        changes["unsure"] = (*found.unsure, *hints)
    if measured != guess:
        operator = with_stage(found.operator, family.blur(measured))
        changes["operator"] = operator
        changes["text"] = (
            f"{diagnosis.summary} Measured more closely in the picture's {where}, and taken as"
            f" {operator.words()}."
        )
    return found.model_copy(update=changes).at_resolved_size(search.size)


def rounding_of(diagnosis: Diagnosis) -> float:
    """Standard deviation of the rounding error of the upload's JPEG compression on the [-1, 1]
    scale; 0 without compression. Ignoring it biases a search towards smaller blurs.
    """

    qualities = [each.values["quality"] for each in diagnosis.findings if each.kind == "jpeg"]
    return max((JPEG(quality=min(FINEST, quality)).rounding for quality in qualities), default=0.0)
