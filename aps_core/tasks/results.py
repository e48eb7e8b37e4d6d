"""Result of a task: pictures or text, output files, and the sidecar needed to reproduce it."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aps_core._lazy import lazy_import
from aps_core.identify.diagnosis.found import Found
from aps_core.imaging.notebook import figure, png_row
from aps_core.imaging.provenance import COMPOSITE, encode
from aps_core.operators.point_spread import point_spread
from aps_core.registry import Config
from aps_core.verdict.fit import Fit

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.registry import Spec
else:
    torch = lazy_import("torch")

SPREAD_WHITE = 0.5
"""Standard deviation, on the [-1, 1] scale, shown as white in the spread map."""


class File(NamedTuple):
    """One file of a result."""

    name: str
    data: bytes
    media_type: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """Result of a task."""

    spec: Spec
    """The spec as executed: settings filled in, sigma a number."""
    seconds: dict[str, float]
    """Wall time in seconds: ``total``; ``sampling``, which includes ``prior``."""
    fingerprint: str
    resumed_from_step: int | None = None
    memory_fallbacks: list[str] = field(default_factory=list)
    """Fallbacks used when the device ran out of memory; see :mod:`aps_core.engines.oom_fallback`.
    They may change tokens.
    """
    notes: list[str] = field(default_factory=list)
    """Messages for the caller, for example a reduced size or an ignored checkpoint."""
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
class PictureResult(Result):
    """Result of a picture task."""

    pictures_BCHW: Tensor
    """Posterior samples in [-1, 1]."""
    codes_BL: Tensor
    deviation_BHW: Tensor | None = None
    """Standard deviation of the error of the samples' brightness, as far as the sampler knows."""
    misfit_B: list[float] = field(default_factory=list)
    """Data misfit of each sample in the units of the measurement; empty without a measurement."""
    noise_floor: float = 0.0
    """Misfit expected of the true picture."""
    fit: Fit | None = None
    """Whether the best sample agrees with the measurement; None without a verdict."""
    found: Found | None = None
    """How an unknown operator was identified; None if the job named its operator."""
    text_notice: str = ""
    """Warning that letters may be wrong, if the upload seems to be a document, page or screen."""
    misfit_curve: list[float] = field(default_factory=list)
    """Misfit at the end of each reverse step of this run, mean over the samples."""
    inner_steps: list[int] = field(default_factory=list)
    """Inner iterations used in each reverse step of this run."""
    drawn: dict[str, Tensor] = field(default_factory=dict)
    """Random parts of the operator (mask, kernel)."""
    source_type: str = COMPOSITE
    """IPTC digital source type."""

    @property
    def best(self) -> int:
        """Index of the sample with the lowest misfit; 0 without a measurement."""
        return int(np.argmin(self.misfit_B)) if self.misfit_B else 0

    def _repr_png_(self) -> bytes:
        return png_row(self.pictures_BCHW)

    def _repr_html_(self) -> str:
        return figure(
            self.pictures_BCHW,
            f"{self.spec.type}. Plausible samples, not evidence of what was there.",
        )

    def mean_CHW(self) -> Tensor:
        """Mean of the samples. It is smoother, and has lower squared error than a single sample."""
        return self.pictures_BCHW.mean(0)

    def spread_HW(self) -> Tensor:
        """See :func:`spread`."""
        return spread(self.pictures_BCHW, self.deviation_BHW)

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


def spread(pictures_BCHW: Tensor, deviation_BHW: Tensor | None) -> Tensor:
    """Standard deviation (H, W) of what a picture may be: large where the measurement determines it
    poorly. It is that over the samples, averaged over colours; and if the sampler expects errors
    that its samples share, their variance is added (law of total variance).
    """
    differing_HW = pictures_BCHW.std(0, correction=min(1, len(pictures_BCHW) - 1)).mean(0)
    if deviation_BHW is None:
        return differing_HW
    return (differing_HW.square() + deviation_BHW.square().mean(0)).sqrt()


def _json(part: Config | None) -> dict[str, Any] | None:
    return None if part is None else part.model_dump(mode="json")


def _digest(x_CHW: Tensor) -> str:
    """SHA-256 of a picture's 8-bit pixels."""
    from aps_core.imaging.images import to_pil

    return sha256(to_pil(x_CHW).tobytes()).hexdigest()
