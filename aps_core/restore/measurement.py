"""A measurement to restore from: observed values, forward operator and noise level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from aps_core._lazy import lazy_import
from aps_core.adapters import deepinv
from aps_core.errors import InvalidSpec
from aps_core.identify.kinds.unknown import Search, UnknownOperator
from aps_core.imaging import images, noise
from aps_core.imaging.noise_level import QUANTISATION
from aps_core.imaging.picture_like import batch, eight_bit, opened, picture, scale_caveats
from aps_core.imaging.resampling import resize
from aps_core.operators import Bound, OperatorSpec
from aps_core.operators.base import four_dimensional
from aps_core.operators.compose import STORED, as_stored
from aps_core.types import BoundOperator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
    from aps_core.identify.diagnosis import Found
    from aps_core.imaging.picture_like import PictureLike
    from aps_core.numerics.likelihood import Noise
    from aps_core.types import InnerHook

    OperatorLike = (
        OperatorSpec | str | Mapping[str, Any] | BoundOperator | Callable[[Tensor], Tensor]
    )
else:
    torch = lazy_import("torch")


GIVE_SIZE = "give the measurement size=(height, width)."


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
    """

    y: PictureLike | Sequence[PictureLike]
    operator: OperatorLike = "denoise"
    sigma: float | Tensor | Literal["auto"] = "auto"
    size: tuple[int, int] | None = None
    mask: PictureLike | None = None
    whole: PictureLike | None = None

    def bind(self, device: torch.device) -> Bind:
        """Moves values, operator and noise to a device and fixes the operator's random parts.

        Raises:
            InvalidSpec: the operator is unknown, does not take a mask or size that is given, or
                does not make measurements of this shape; or the picture's size or noise cannot be
                determined.
            ImageRejected, ImageTooLarge: a picture file cannot be read.
        """
        y_BCHW, given = batch(self.y).to(device), self.registered()
        operator, size = self._operator(y_BCHW, device)
        if isinstance(given, OperatorSpec):
            y_BCHW = torch.stack([given.measurement(y_CHW) for y_CHW in y_BCHW])
        sigma = self._sigma(y_BCHW, operator)
        assumed: Noise = sigma
        if isinstance(given, OperatorSpec):
            assumed, sigma = given.likelihood_noise(sigma), given.judged_noise(sigma)
        return Bind(
            y_BCHW=y_BCHW, operator=operator, sigma=sigma, likelihood_noise=assumed, size=size
        )

    def beyond_borders(self, bind: Bind, stride: int) -> tuple[Bind, int]:
        """``bind`` for pictures that extend beyond their borders, and by how many pixels; see
        :meth:`aps_core.operators.OperatorSpec.bind_wide`. Unchanged, and 0, for operators that are
        not registered or do not mix pixels.
        """
        given = self.registered()
        beyond = given.beyond(stride) if isinstance(given, OperatorSpec) else 0
        if not isinstance(given, OperatorSpec) or not beyond:
            return bind, 0
        (height, width), compared = bind.size, given.without_rounding()
        operator = compared.bind_wide((3, height, width), beyond, bind.y_BCHW.device)
        size = height + 2 * beyond, width + 2 * beyond
        return replace(bind, operator=operator, size=size), beyond

    def examined(self) -> images.Picture | None:
        """What tells what was photographed, and what happened to it: the whole picture, else the
        first measurement, if that is a picture.
        """
        given = self.y if self.whole is None else self.whole
        known = self._file if self.whole is None else opened(given)
        if known is not None:
            return known
        y_CHW = batch(given)[0]
        return images.Picture(images.to_pil(y_CHW)) if len(y_CHW) == 3 else None

    def identified(
        self, engine: ImageEngine | None = None, seed: int = 0, on_inner: InnerHook | None = None
    ) -> tuple[Measurement, Found | None]:
        """This measurement with its operator identified, if that is unknown ('auto'); and how.

        Args:
            engine: prior of operators that are estimated with one.
            seed: seed of every random draw.
            on_inner: called during long work; returning False cancels.

        Raises:
            NothingToRestore: no degradation was found that an operator describes.
            InvalidSpec: there are several pictures.
        """
        given = self.registered()
        if not isinstance(given, UnknownOperator):
            return self, None
        y_BCHW, upload = batch(self.y), self.examined()
        if len(y_BCHW) > 1 or y_BCHW.shape[1] != 3 or upload is None:
            raise InvalidSpec(f"The operator '{given.type}' is identified from one picture.")
        height, width = y_BCHW.shape[2:]
        sigma = self.sigma if isinstance(self.sigma, float | int) else None
        found = given.find(
            Search(
                upload=upload,
                engine=engine,
                sigma=sigma,
                seed=seed,
                on_inner=on_inner,
                part=(width, height),
            )
        )
        known = replace(self, operator=found.operator)
        _, whole, _ = found.operator.image_shape((3, max(height, width), 1))
        if found.working_size is not None and whole > found.working_size:
            # it was enlarged, or is widely blurred: it is reduced to its real resolution
            scale = found.working_size / whole
            sides = max(1, int(height * scale)), max(1, int(width * scale))
            y_BCHW = resize(y_BCHW[0], sides)[None]
            scaled = found.operator.scaled(max(sides) / max(height, width))
            known = replace(known, y=y_BCHW, operator=scaled)
        if found.peak is not None and self.sigma == "auto":
            photons_BCHW = noise.poisson_sigma(y_BCHW, found.peak)
            known = replace(known, sigma=(photons_BCHW.square() + self._least_sigma**2).sqrt())
        return known, found

    def registered(self) -> BoundOperator | Callable[[Tensor], Tensor] | OperatorSpec:
        """The operator; a name or fields as its spec, with the compression of a JPEG file.

        Raises:
            InvalidSpec: it is unknown, or no operator.
        """
        given = self.operator
        if isinstance(given, str | Mapping):
            given = OperatorSpec.from_fields({"type": given} if isinstance(given, str) else given)
        if isinstance(given, OperatorSpec):
            return as_stored(given, self._file.jpeg_quality if self._file else None)
        if not callable(given):
            raise InvalidSpec(
                "'operator' is a registered operator, its name or fields, or a function of"
                f" pictures, not {given!r}."
            )
        return given

    def caveats(self) -> list[str]:
        """Notes on a JPEG's rounding or a doubtful scale; an impossible one is InvalidSpec."""
        given, file = self.registered(), self._file
        if not isinstance(given, OperatorSpec):
            return []
        if file is None:
            return scale_caveats(batch(self.y))
        stored = given != replace(self, y=file.image).registered()
        return [STORED.format(file.jpeg_quality)] if stored else []

    @cached_property
    def _file(self) -> images.Picture | None:
        """``y``, if it is one file, PIL image or 8-bit array."""
        return opened(self.y)

    @property
    def _least_sigma(self) -> float:
        if self._file is not None:
            return noise.least_sigma(self._file)
        return QUANTISATION if eight_bit(self.y) else 0.0

    def _operator(self, y_BCHW: Tensor, device: torch.device) -> tuple[Bound, tuple[int, int]]:
        """A, and height and width of the picture."""
        given = self.registered()
        if isinstance(given, OperatorSpec):
            operator, size = self._registered_operator(given, y_BCHW, device)
        else:
            physics = deepinv.is_physics(given)
            function = deepinv.bound(given) if physics else given
            operator = four_dimensional(
                function if isinstance(function, BoundOperator) else Bound(function)
            )
            told = self.size or (deepinv.image_size(given) if physics else None)
            size = told or _same_size(operator, y_BCHW)
        made = _made(operator, y_BCHW, size)
        if made != y_BCHW.shape[1:]:
            raise InvalidSpec(
                f"For a picture of {size[1]}x{size[0]} pixels the operator makes measurements of"
                f" shape {tuple(made)}, but 'y' has {tuple(y_BCHW.shape[1:])}; a picture is"
                " (3, height, width) in [-1, 1]."
            )
        return operator, size

    def _registered_operator(
        self, given: OperatorSpec, y_BCHW: Tensor, device: torch.device
    ) -> tuple[Bound, tuple[int, int]]:
        """A registered operator, which tells the picture's size."""
        channels, height, width = y_BCHW.shape[1:]
        size = given.image_shape((channels, height, width))[1:]
        if self.size not in (None, size):
            raise InvalidSpec(
                f"'size' is {self.size}, but the operator '{given.type}' makes such a measurement"
                f" of a picture of {size}; leave 'size' out."
            )
        if self.mask is not None and not given.needs_mask:
            raise InvalidSpec(f"The operator '{given.type}' takes no mask; leave 'mask' out.")
        mask_HW = self._mask()
        mask_HW = None if mask_HW is None else mask_HW.to(device)
        return given.without_rounding().bind((3, *size), device, mask_HW), size

    def _mask(self) -> Tensor | None:
        """Mask (H, W), 1 = known: ``mask``, else the alpha channel of ``y``, else None."""
        if self.mask is None:
            alpha = self._file
            return images.mask_to_tensor(alpha) if alpha and alpha.has_alpha else None
        if (file := opened(self.mask)) is not None:
            return images.mask_to_tensor(file)
        mask = picture(self.mask)
        return ((mask if mask.ndim == 2 else mask.mean(0)) > 0).float()

    def _sigma(self, y_BCHW: Tensor, operator: BoundOperator) -> float | Tensor:
        if not isinstance(self.sigma, str):
            number = isinstance(self.sigma, float | int)
            return self.sigma if number else torch.as_tensor(self.sigma).to(y_BCHW)
        if deepinv.is_physics(self.operator):
            known = deepinv.sigma(self.operator)
            if known is not None:
                return known
        if y_BCHW.shape[1] != 3 or min(y_BCHW.shape[2:]) < 8:
            raise InvalidSpec(
                f"The noise of a measurement of {tuple(y_BCHW.shape[1:])} cannot be estimated;"
                " set 'sigma', or give a picture as (3, height, width) in [-1, 1]."
            )
        estimates = [float(noise.estimate_sigma(y_CHW, operator.weight)) for y_CHW in y_BCHW]
        return max(sum(estimates) / len(estimates), self._least_sigma)


@dataclass(frozen=True)
class Bind:
    """A measurement on a device."""

    y_BCHW: Tensor
    operator: Bound
    sigma: float | Tensor
    """Of the noise, as a verdict takes it."""
    likelihood_noise: Noise
    """As the likelihood takes it."""
    size: tuple[int, int]
    """Height and width of the picture to restore."""


def _same_size(operator: Bound, y_BCHW: Tensor) -> tuple[int, int]:
    """The measurement's own size, if the operator preserves it."""
    height, width = y_BCHW.shape[-2:]
    if _made(operator, y_BCHW, (height, width))[-2:] != (height, width):
        raise InvalidSpec(f"The operator does not keep the picture's size; {GIVE_SIZE}")
    return height, width


def _made(operator: Bound, y_BCHW: Tensor, size: tuple[int, int]) -> torch.Size:
    """Shape of A's measurement of a picture of that height and width."""
    try:
        with torch.no_grad():
            return torch.Size(operator(y_BCHW.new_zeros(1, 3, *size)).shape[1:])
    except RuntimeError as error:  # raised by torch for an unsupported shape
        raise InvalidSpec(
            f"The operator fails for a picture of {size[1]}x{size[0]} pixels ({error}); if the"
            f" picture has another size, {GIVE_SIZE}"
        ) from error
