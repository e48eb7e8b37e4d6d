"""Result of a restoration, and of everything else that draws pictures from a posterior."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aps_core.identify.diagnosis.found import Found
from aps_core.imaging.images import to_pil
from aps_core.imaging.notebook import figure, png_row
from aps_core.losses import LossSpec
from aps_core.samplers import SamplerSpec
from aps_core.verdict.fit import Fit

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What every run leaves beside its output."""

    seconds: dict[str, float]
    """Wall time in seconds: ``total``; ``sampling``, which includes ``prior``."""
    resumed_from_step: int | None = None
    memory_fallbacks: list[str] = field(default_factory=list)
    """Fallbacks used when the device ran out of memory; see :mod:`aps_core.engines.oom_fallback`.
    They may change tokens.
    """
    notes: list[str] = field(default_factory=list)
    """Messages for the caller, for example a reduced size or an ignored checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Pictures(Computed):
    """Posterior samples, and what is known of them."""

    pictures_BCHW: Tensor
    """Posterior samples in [-1, 1]; with several measurements, grouped by measurement."""
    codes_BL: Tensor
    deviation_BHW: Tensor | None = None
    """Standard deviation of the error of the samples' brightness, as far as the sampler knows."""
    misfit_B: list[float] = field(default_factory=list)
    """Data misfit of each sample in the units of the measurement; empty without a measurement."""
    noise_floor: float = 0.0
    """Misfit expected of the true picture."""
    fit: Fit | None = None
    """Whether the best sample of the first measurement agrees with it; None without a verdict."""
    found: Found | None = None
    """How an unknown operator was identified; None if the operator was given."""
    text_notice: str = ""
    """Warning that letters may be wrong, if the upload seems to be a document, page or screen."""
    misfit_curve: list[float] = field(default_factory=list)
    """Misfit at the end of each reverse step of this run, mean over the samples."""
    inner_steps: list[int] = field(default_factory=list)
    """Inner iterations used in each reverse step of this run."""
    drawn: dict[str, Tensor] = field(default_factory=dict)
    """Random parts of the operator (mask, kernel)."""

    @property
    def best(self) -> int:
        """Index of the sample of the first measurement with the lowest misfit; 0 without one."""
        return int(np.argmin(self.misfit_B)) if self.misfit_B else 0

    @property
    def images(self) -> list[Image.Image]:
        """Every sample as a PIL image."""
        return [to_pil(x_CHW) for x_CHW in self.pictures_BCHW]

    @property
    def image(self) -> Image.Image:
        """The best sample as a PIL image."""
        return to_pil(self.pictures_BCHW[self.best])

    def mean_CHW(self) -> Tensor:
        """Mean of the samples. It is smoother, and has lower squared error than a single sample."""
        return self.pictures_BCHW.mean(0)

    def spread_HW(self) -> Tensor:
        """See :func:`spread`."""
        return spread(self.pictures_BCHW, self.deviation_BHW)

    def _repr_png_(self) -> bytes:
        return png_row(self.pictures_BCHW)


@dataclass(frozen=True, kw_only=True)
class Restoration(Pictures):
    """Posterior samples of one or several measurements."""

    sigma: float | Tensor
    """Standard deviation of the noise that was assumed, on the [-1, 1] scale; without the photons'
    if ``peak`` is set.
    """
    peak: float | None = None
    """Mean photon count of a white pixel, if photon noise was assumed."""
    samples: int = 1
    """Number of samples per measurement."""
    prior: str | None
    """Name of the registered prior; None for another."""
    sampler: SamplerSpec
    """The settings used."""
    loss: LossSpec
    seed: int

    @property
    def best(self) -> int:
        """Index of the sample of the first measurement with the lowest misfit."""
        return int(np.argmin(self.misfit_B[: self.samples]))

    def _repr_html_(self) -> str:
        misfits = ", ".join(f"{misfit:.4f}" for misfit in self.misfit_B)
        return figure(
            self.pictures_BCHW,
            f"{self.prior or 'own prior'}, {self.sampler.type}, seed {self.seed}; misfit"
            f" {misfits} (noise {self.noise_floor:.4f}). Plausible samples, not evidence of what"
            " was there.",
        )


def spread(pictures_BCHW: Tensor, deviation_BHW: Tensor | None) -> Tensor:
    """Standard deviation (H, W) of what a picture may be: large where the measurement determines it
    poorly. It is that over the samples, averaged over colours; and if the sampler expects errors
    that its samples share, their variance is added (law of total variance).
    """
    differing_HW = pictures_BCHW.std(0, correction=min(1, len(pictures_BCHW) - 1)).mean(0)
    if deviation_BHW is None:
        return differing_HW
    return (differing_HW.square() + deviation_BHW.square().mean(0)).sqrt()
