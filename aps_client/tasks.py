"""Methods for the built-in tasks, shared by both clients.

Any other task is called with ``run(name, files, **spec)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from aps_client.flows import Source

R = TypeVar("R")
"""Return type of running a task: a result, or an awaitable of one."""


class Tasks(ABC, Generic[R]):
    """One method per built-in task.

    Each method submits a job, waits for it and downloads the result. Further keyword arguments are
    fields of the task's spec (listed by ``/v1/capabilities``) and ``timeout``, the seconds to wait.
    Pictures are paths, bytes, open binary files, or ``"sha256:" + hash`` of an uploaded picture.

    Raises:
        JobFailed, JobCanceled: the job ended without a result.
        WaitTimeout: the job is still unfinished after ``timeout`` seconds; it keeps running.
        ServiceError, Unreachable, Corrupt: a request or a download failed.
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
        """Submits a job, waits for it and downloads its result.

        Args:
            task: name of the task, such as ``restore``.
            files: pictures by field name; None values are ignored.
            timeout: seconds to wait for the job; None waits as long as it takes.
            spec: fields of the task's spec.
        """

    def restore(
        self,
        image: Source,
        operator: str | Mapping[str, Any] = "denoise",
        *,
        mask: Source | None = None,
        kernel: Source | None = None,
        whole: Source | None = None,
        **spec: Any,
    ) -> R:
        """Restores a degraded picture.

        Args:
            image: the degraded picture.
            operator: the degradation: a name, or a mapping with ``type`` and the operator's fields.
            mask: picture of the same size, white where pixels are known.
            kernel: small grey picture of a point of light, for ``kernel_blur``.
            whole: the picture that ``image`` was cut from. What happened to it is read from all of
                it.
            spec: further fields of the spec, and ``timeout``.
        """
        return self.run(
            "restore",
            {"image": image, "mask": mask, "kernel": kernel, "whole": whole},
            operator={"type": operator} if isinstance(operator, str) else operator,
            **spec,
        )

    def edit(self, image: Source, prompt: str, *, mask: Source | None = None, **spec: Any) -> R:
        """Regenerates part of a picture from a prompt, or extends the picture.

        Args:
            image: the picture to edit.
            prompt: text that describes the new content.
            mask: picture of the same size, white where ``image`` is kept. Without it, the
                transparent pixels of ``image`` are regenerated.
            spec: further fields of the spec, such as ``left``, ``top``, ``right`` and ``bottom``
                (pixels to add), and ``timeout``.
        """
        return self.run("edit", {"image": image, "mask": mask}, prompt=prompt, **spec)

    def stylize(self, style: Source, prompt: str, *, image: Source | None = None, **spec: Any) -> R:
        """Generates a picture from a prompt in the style of another picture.

        Args:
            style: the picture whose style is used.
            prompt: text that describes the content.
            image: picture whose layout is kept.
            spec: further fields of the spec, and ``timeout``.
        """
        return self.run("stylize", {"style": style, "image": image}, prompt=prompt, **spec)

    def generate(self, prompt: str = "", **spec: Any) -> R:
        """Generates a picture with the prior alone.

        Args:
            prompt: text that describes the content; if empty, generation is unconditional.
            spec: further fields of the spec, and ``timeout``.
        """
        return self.run("generate", prompt=prompt, **spec)

    def guide(self, prompt: str | Sequence[Mapping[str, str]], **spec: Any) -> R:
        """Generates a text answer guided by a reward model.

        Args:
            prompt: the question or instruction, or the messages of a chat, each with ``role`` and
                ``content``. Further prompts go into ``more_prompts`` (see ``Result.texts``).
            spec: further fields of the spec, and ``timeout``.
        """
        return self.run("guide", prompt=prompt, **spec)
