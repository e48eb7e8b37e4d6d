"""Result of a task: pictures or text, output files, and the sidecar needed to reproduce it."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from aps_core.imaging.images import to_pil
from aps_core.imaging.notebook import figure
from aps_core.imaging.provenance import COMPOSITE, encode
from aps_core.operators.point_spread import point_spread
from aps_core.registry import Config
from aps_core.restoration.result import Computed, Pictures

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.registry import Spec

SPREAD_WHITE = 0.5
"""Standard deviation, on the [-1, 1] scale, shown as white in the spread map."""


class File(NamedTuple):
    """One file of a result."""

    name: str
    data: bytes
    media_type: str


@dataclass(frozen=True, kw_only=True)
class Result(Computed):
    """Result of a task."""

    spec: Spec
    """The spec as executed: settings filled in, sigma a number."""
    fingerprint: str
    origin: dict[str, Any] = field(default_factory=dict)
    """Machine and inputs; see :func:`aps_core.tasks.running.origin`."""

    def sidecar(self) -> dict[str, Any]:
        """Everything needed to interpret and reproduce the job, as JSON."""
        return {
            "spec": self.spec.model_dump(mode="json"),
            "origin": self.origin,
            "fingerprint": self.fingerprint,
            "seconds": self.seconds,
            "resumed_from_step": self.resumed_from_step,
            "memory_fallbacks": self.memory_fallbacks,
            "notes": self.notes,
        }

    def metrics(self) -> dict[str, Any]:
        """Summary numbers of the run, as JSON."""
        return {
            "sampling_seconds": self.seconds["sampling"],
            "prior_seconds": self.seconds["prior"],
            "notes": self.notes,
        }

    def files(self, suffix: str = ".png") -> list[File]:
        """Output files without the sidecar; the first is the main result.

        Equal runs give equal bytes. ``suffix`` selects the file format of pictures.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PictureResult(Result, Pictures):
    """Result of a picture task."""

    source_type: str = COMPOSITE
    """IPTC digital source type."""

    @classmethod
    def of(cls, made: Pictures, **more: Any) -> Self:
        """Pictures as the result of a task.

        Args:
            made: what was computed.
            more: the other fields, and those to replace.
        """
        own = {each.name: getattr(made, each.name) for each in fields(Pictures)}
        return cls(**{**own, **more})

    def _repr_html_(self) -> str:
        return figure(
            self.pictures_BCHW,
            f"{self.spec.type}. Plausible samples, not evidence of what was there.",
        )

    def sidecar(self) -> dict[str, Any]:
        """Adds misfits, spread and a disclaimer."""
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
            "fit": _json(self.fit),
            "found": _json(self.found),
            "text_notice": self.text_notice,
            "misfit_curve": self.misfit_curve,
            "inner_steps": self.inner_steps,
        }

    def metrics(self) -> dict[str, Any]:
        """Adds misfit, noise and inner steps."""
        measured = {
            "misfit": self.misfit_B,
            "noise_floor": self.noise_floor,
            "sigma": getattr(self.spec, "sigma", None),
            "fit": _json(self.fit),
            "found": _json(self.found),
            "text_notice": self.text_notice,
        }
        return {**super().metrics(), "inner_steps": self.inner_steps, **measured}

    def files(self, suffix: str = ".png") -> list[File]:
        """The best sample; every sample if there are several; with a measurement also their mean,
        and their spread as picture and array; of a blur that was found, its point spread.

        Raises:
            InvalidSpec: ``suffix`` is not a supported picture format.
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
        blur_CHW = None if self.found is None else point_spread(self.found.operator)
        if blur_CHW is not None:
            files.append(picture("blur", blur_CHW))
        return files


def _json(part: Config | None) -> dict[str, Any] | None:
    return None if part is None else part.model_dump(mode="json")


def _digest(x_CHW: Tensor) -> str:
    """SHA-256 of a picture's 8-bit pixels."""
    return sha256(to_pil(x_CHW).tobytes()).hexdigest()
