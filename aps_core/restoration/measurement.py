"""A measurement to restore from: observed values, forward operator and noise level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aps_core._lazy import lazy_import
from aps_core.adapters.function import FunctionOperator
from aps_core.errors import InvalidSpec
from aps_core.identify.diagnosis.found import Found
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.imaging.picture_like import PictureLike, batch, eight_bit, opened, picture
from aps_core.operators import OperatorSpec
from aps_core.types import BoundOperator

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = lazy_import("torch")

OperatorLike = OperatorSpec | str | Mapping[str, Any] | BoundOperator | Callable[..., Any]


@dataclass(frozen=True)
class Measurement:
    """``y = A(x) + sigma * noise`` of one picture x, or of several.

    Args:
        y: measured values. A float tensor or array (C, H, W), or (B, C, H, W) for B pictures, in
            the operator's scale (pictures are in [-1, 1]); an 8-bit array (H, W), (H, W, C) or (B,
            H, W, C); a PIL image; the path of a PNG, JPEG or WebP file; or a list of these.
        operator: A. A registered operator (its spec, name, or JSON as a dictionary; 'auto' is
            identified from one picture by :func:`aps_core.restore`), a deepinv
            physics object, or any differentiable, noiseless function or module from pictures (B, 3,
            H, W) in [-1, 1] to measurements.
        sigma: standard deviation of the noise in the scale of ``y``, as a number or a tensor that
            broadcasts to ``y``. 'auto' uses the physics object's noise level, or estimates it from
            ``y``, which must then be a picture; of 8 bits, at least their rounding error.
        size: height and width of x in pixels; required if the operator does not determine it.
        mask: picture of the known pixels (white or opaque = known), for operators that use a mask.
            Default: the alpha channel of ``y``.
        whole: the picture that ``y`` was cut from, at the same resolution; an operator that is
            unknown is identified from all of it, and the prior is chosen by it.
        peak: mean photon count of a white pixel, if the noise is that of photons beside ``sigma``,
            of which 'auto' then means the least.
    """

    y: PictureLike | Sequence[PictureLike]
    operator: OperatorLike = "denoise"
    sigma: float | Tensor | Literal["auto"] = "auto"
    size: tuple[int, int] | None = None
    mask: PictureLike | None = None
    whole: PictureLike | None = None
    peak: float | None = None

    def check_noise(self) -> None:
        """Checks the type and range of ``sigma``.

        Raises:
            InvalidSpec: it is neither 'auto' nor a number or tensor from 0.
        """
        sigma = self.sigma
        known = isinstance(sigma, Real | torch.Tensor | np.ndarray) and bool(
            torch.as_tensor(sigma).ge(0).all()
        )
        if sigma != "auto" and not known:
            raise InvalidSpec(f"'sigma' is 'auto', or a number or tensor from 0, not {sigma!r}.")

    @cached_property
    def spec(self) -> OperatorSpec:
        """The operator; a name or fields as a registered one.

        Raises:
            InvalidSpec: it is unknown, or no operator.
        """
        given = self.operator
        if isinstance(given, str | Mapping):
            given = OperatorSpec.from_fields({"type": given} if isinstance(given, str) else given)
        return given if isinstance(given, OperatorSpec) else FunctionOperator.of(given, self.size)

    @cached_property
    def upload(self) -> images.Picture | None:
        """``y``, if it is one file, PIL image or 8-bit array."""
        return opened(self.y)

    @cached_property
    def values(self) -> Tensor:
        """``y`` as (B, C, H, W)."""
        return batch(self.y if self.upload is None else self.upload)

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height of ``y``."""
        if self.upload is not None:
            return self.upload.size
        return self.values.shape[3], self.values.shape[2]

    @cached_property
    def examined(self) -> images.Picture | None:
        """Picture used to choose prior and operator: ``whole``, else the first measurement; None if
        that is no picture. Transparent pixels of ``y`` are missing there, so it is examined itself.
        """
        part = self.upload
        if self.whole is not None and not (part and part.has_alpha):
            return as_picture(self.whole)
        return part or as_picture(self.values[0])

    @cached_property
    def mask_HW(self) -> Tensor | None:
        """Mask (H, W), 1 = known: ``mask``, else the alpha channel of ``y``, else None."""
        if self.mask is None:
            upload = self.upload
            return images.mask_to_tensor(upload) if upload and upload.has_alpha else None
        if (file := opened(self.mask)) is not None:
            return images.mask_to_tensor(file)
        mask = picture(self.mask)
        return ((mask if mask.ndim == 2 else mask.mean(0)) > 0).float()

    def least_sigma(self, scale: float = 1.0) -> float:
        """Smallest credible noise: that of rounding to 8 bits, and what a JPEG had before.

        Args:
            scale: factor by which the picture is reduced, which averages noise.
        """
        if self.upload is not None:
            return noise.least_sigma(self.upload, scale)
        return QUANTISATION if eight_bit(self.y) else 0.0

    def identified(self, found: Found) -> Measurement:
        """This measurement with the operator, and perhaps the photon noise, that were found."""
        known = replace(self, operator=found.operator)
        if found.peak is not None and self.sigma == "auto":
            known = replace(known, peak=found.peak)
        return known


def as_picture(given: PictureLike) -> images.Picture | None:
    """``given`` as 8-bit pixels; None if it has not three channels."""
    if (file := opened(given)) is not None:
        return file
    x_CHW = batch(given)[0]
    return images.Picture(images.to_pil(x_CHW)) if len(x_CHW) == 3 else None
