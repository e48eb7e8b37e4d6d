"""What a task returns: its result, the files it consists of, and the sidecar from which it can be
made again.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aps_core._lazy import lazy_import
from aps_core.imaging.provenance import COMPOSITE, encode

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.registry import Spec
else:
    torch = lazy_import("torch")

SPREAD_WHITE = 0.5
"""Standard deviation, on the [-1, 1] scale, that is white in the spread map's picture."""


class File(NamedTuple):
    """One file of a result."""

    name: str
    data: bytes
    media_type: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a task returns."""

    spec: Spec
    """The spec as it was run: settings filled in, sigma a number."""
    seconds: dict[str, float]
    """Wall time: ``sampling``, of it ``prior``; ``total``."""
    fingerprint: str
    resumed_from_step: int | None = None
    memory_rungs: list[str] = field(default_factory=list)
    """What was done when the device ran out of memory, see :mod:`aps_core.runtime.oom_fallback`;
    such a run may differ from an undisturbed one.
    """
    notes: list[str] = field(default_factory=list)
    """What the caller should know: a reduced size, a checkpoint that could not be used."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Where it was made and from what; see :func:`aps_core.tasks.running.origin`."""

    def sidecar(self) -> dict[str, Any]:
        """Everything needed to understand and repeat the job, as JSON."""
        return {
            "spec": self.spec.model_dump(mode="json"),
            "origin": self.origin,
            "fingerprint": self.fingerprint,
            "seconds": self.seconds,
            "resumed_from_step": self.resumed_from_step,
            "memory_rungs": self.memory_rungs,
            "notes": self.notes,
        }

    def metrics(self) -> dict[str, Any]:
        """The few numbers that say how it went, as JSON."""
        return {
            "sampling_seconds": self.seconds["sampling"],
            "prior_seconds": self.seconds["prior"],
            "notes": self.notes,
        }

    def files(self, suffix: str = ".png") -> list[File]:
        """The result as files, without the sidecar; the first is what most callers want.

        Equal runs give equal bytes. ``suffix`` says how pictures are written.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PictureResult(Result):
    """Samples of a picture."""

    pictures_BCHW: Tensor
    """Posterior samples in [-1, 1]."""
    codes_BL: Tensor
    misfit_B: list[float] = field(default_factory=list)
    """Data misfit of each sample, in the measurement's own units; empty where nothing was measured.
    """
    noise_floor: float = 0.0
    """Misfit expected of the truth."""
    misfit_curve: list[float] = field(default_factory=list)
    """Misfit at the end of each reverse step of this run, mean over the samples."""
    inner_steps: list[int] = field(default_factory=list)
    """Inner iterations used in each reverse step of this run."""
    drawn: dict[str, Tensor] = field(default_factory=dict)
    """What the operator drew at random (mask, kernel)."""
    source_type: str = COMPOSITE
    """IPTC digital source type."""

    @property
    def best(self) -> int:
        """The sample that agrees best with the measurement; the first where nothing was
        measured.
        """
        return int(np.argmin(self.misfit_B)) if self.misfit_B else 0

    def mean_CHW(self) -> Tensor:
        """Mean of the samples: closer to the truth in squared error than any of them, and
        smoother.
        """
        return self.pictures_BCHW.mean(0)

    def spread_HW(self) -> Tensor:
        """Standard deviation over the samples, mean over the colours: where the measurement leaves
        the picture open.
        """
        return self.pictures_BCHW.std(0).mean(0)

    def sidecar(self) -> dict[str, Any]:
        """See :meth:`Result.sidecar`."""
        height, width = self.pictures_BCHW.shape[-2:]
        several = len(self.misfit_B) > 1
        return {
            "notice": (
                "Made by a generative model: a plausible sample, not evidence of what was there."
            ),
            "digital_source_type": self.source_type,
            **super().sidecar(),
            "size": {"width": width, "height": height},
            "samples_sha256": [_digest(x_CHW) for x_CHW in self.pictures_BCHW],
            "best": self.best,
            "spread": (
                {
                    "mean": float(self.spread_HW().mean()),
                    "max": float(self.spread_HW().max()),
                    "white": SPREAD_WHITE,
                }
                if several
                else None
            ),
            "misfit": self.misfit_B,
            "noise_floor": self.noise_floor,
            "misfit_curve": self.misfit_curve,
            "inner_steps": self.inner_steps,
        }

    def metrics(self) -> dict[str, Any]:
        """See :meth:`Result.metrics`."""
        measured = {
            "misfit": self.misfit_B,
            "noise_floor": self.noise_floor,
            "sigma": getattr(self.spec, "sigma", None),
        }
        return {**super().metrics(), "inner_steps": self.inner_steps, **measured}

    def files(self, suffix: str = ".png") -> list[File]:
        """The best sample; of several also each one, and of a measurement their mean and their
        spread as a picture and as an array.

        Raises:
            InvalidSpec: pictures are not written as ``suffix``.
        """
        sidecar, media_type = self.sidecar(), f"image/{suffix.lower().lstrip('.')}"

        def picture(name: str, x_CHW: Tensor) -> File:
            return File(
                str(PurePath(name).with_suffix(suffix)), encode(x_CHW, sidecar, suffix), media_type
            )

        files = [picture("result", self.pictures_BCHW[self.best])]
        if len(self.pictures_BCHW) > 1:
            files += [
                picture(f"sample-{number}", x_CHW)
                for number, x_CHW in enumerate(self.pictures_BCHW, start=1)
            ]
        if len(self.misfit_B) > 1:
            spread_HW, array = self.spread_HW().float().cpu(), io.BytesIO()
            np.save(array, spread_HW.numpy())
            files += [
                picture("mean", self.mean_CHW()),
                picture("spread", (2 * spread_HW / SPREAD_WHITE - 1).expand(3, -1, -1)),
            ]
            files.append(File("spread.npy", array.getvalue(), "application/octet-stream"))
        return files


def _digest(x_CHW: Tensor) -> str:
    """SHA-256 of a picture's 8-bit pixels."""
    from aps_core.imaging.images import to_pil

    return sha256(to_pil(x_CHW).tobytes()).hexdigest()
