"""The tasks as methods, once for both clients. A task without a method here is ``run(name, files,
**spec)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from aps_client.flows import Source

R = TypeVar("R")
"""What running a task gives: a result, or something to await for one."""


class Tasks(ABC, Generic[R]):
    """Every method takes the fields of the task's spec by name (see ``/v1/capabilities``), and
    those of :meth:`run`.
    """

    @abstractmethod
    def run(
        self,
        task: str,
        files: Mapping[str, Source | None] | None = None,
        *,
        timeout: float | None = None,
        **spec: Any,
    ) -> R:
        """Submits, waits and downloads."""

    def restore(
        self,
        image: Source,
        operator: str | Mapping[str, Any] = "denoise",
        *,
        mask: Source | None = None,
        **spec: Any,
    ) -> R:
        """Restores a degraded picture. ``operator`` says what happened to it: a name, or a mapping
        with ``type`` and its fields.
        """
        return self.run(
            "restore",
            {"image": image, "mask": mask},
            operator={"type": operator} if isinstance(operator, str) else operator,
            **spec,
        )

    def edit(self, image: Source, prompt: str, *, mask: Source | None = None, **spec: Any) -> R:
        """Draws the masked part (black, or transparent) of a picture anew, or extends it: ``left``,
        ``top``, ``right``, ``bottom``.
        """
        return self.run("edit", {"image": image, "mask": mask}, prompt=prompt, **spec)

    def stylize(self, style: Source, prompt: str, *, image: Source | None = None, **spec: Any) -> R:
        """Makes a picture after a prompt in the style of another; ``image`` gives the layout."""
        return self.run("stylize", {"style": style, "image": image}, prompt=prompt, **spec)

    def generate(self, prompt: str = "", **spec: Any) -> R:
        """Draws a picture by the prior's own sampling."""
        return self.run("generate", prompt=prompt, **spec)

    def guide(self, prompt: str, **spec: Any) -> R:
        """Answers a prompt, steered by a reward."""
        return self.run("guide", prompt=prompt, **spec)
