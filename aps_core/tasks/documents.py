"""Pictures of pages and screens: the prior that restores them, and the warning about letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from aps_core.priors import ImagePriorSpec, trained_on
from aps_core.tasks.results import PictureResult

TEXT_NOTE = (
    "This seems to be a page or screen. Letters and digits of the result may be guesses, even where"
    " they are sharp: check them against the original."
)


def prior_for_documents(
    task: str, spec: Mapping[str, Any], offered: Iterable[str] | None = None
) -> str | None:
    """The prior to use if the picture of a job is a page or screen. None if the job is no
    restoration, names a prior or has a prompt, which the documents prior does not know, or if
    there is no such prior.

    Args:
        task: type of the job.
        spec: its spec as JSON, as the caller wrote it.
        offered: names of priors; default: those whose weights are installed.
    """
    if task != "restore" or "prior" in spec or spec.get("prompt"):
        return None
    return trained_on("documents", offered)


def warned(result: PictureResult, prior: ImagePriorSpec) -> PictureResult:
    """The result with the warning about letters. A note says if ``prior`` is one for documents."""
    notes = [*result.notes, TEXT_NOTE]
    if prior.content == "documents":
        notes.append(f"The prior '{prior.type}' was trained on pages and screens.")
    return replace(result, text_notice=TEXT_NOTE, notes=notes)
