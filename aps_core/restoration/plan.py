"""Decides everything about a restoration before it is computed.

A plan is made of a measurement and of settings: the library fills them from its arguments, a job
from its spec and its uploads. What follows is the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aps_core._lazy import lazy_import
from aps_core.adapters.function import FunctionOperator
from aps_core.errors import InvalidSpec
from aps_core.identify.diagnosis import shows_text
from aps_core.identify.diagnosis.found import Found
from aps_core.identify.kinds.unknown import UnknownOperator
from aps_core.identify.search import Search
from aps_core.imaging import noise
from aps_core.imaging.images import MaskCoverage
from aps_core.imaging.picture_like import scale_caveats
from aps_core.losses import LossSpec
from aps_core.operators import OperatorSpec
from aps_core.operators.compose import AVERAGED, STORED, as_stored
from aps_core.operators.jpeg import averaged
from aps_core.restoration.layout import Layout
from aps_core.restoration.measurement import Measurement
from aps_core.restoration.observation import Observation
from aps_core.samplers import SamplerSpec
from aps_core.types import InnerHook

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aps_core.engines.engine import ImageEngine
    from aps_core.numerics.likelihood import Noise
else:
    torch = lazy_import("torch")

EXAMINED = 16
"""Tiles, evenly spread, from which noise and verdict are computed."""
TEXT_NOTE = (
    "This seems to be a page or screen. Letters and digits of the result may be guesses, even where"
    " they are sharp: check them against the original."
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How samples are drawn. Sampler and loss are complete: recommendations are filled in."""

    sampler: SamplerSpec
    loss: LossSpec
    seed: int = 0
    samples: int = 1
    """Number of samples per measurement."""
    prompt: str = ""
    working_size: int | None = None
    tile: int | None = None

    def layout(self, operator: OperatorSpec, upload: tuple[int, int], stride: int) -> Layout:
        """Sizes of a restoration of an upload of width and height ``upload``."""
        return Layout(
            operator=operator,
            upload=upload,
            stride=stride,
            samples=self.samples,
            working_size=self.working_size,
            tile=self.tile,
            extends=self.sampler.beyond_borders,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that is decided about a restoration."""

    settings: Settings
    layout: Layout
    """Sizes, and the operator with the rounding of the upload's compression."""
    observation: Observation
    sigma: float | Tensor
    """Standard deviation of the noise, without that of photons."""
    peak: float | None
    """Mean photon count of a white pixel, if there is photon noise."""
    found: Found | None
    """How an unknown operator was identified."""
    shows_text: bool
    """Whether the upload seems to be a page or screen."""
    notes: tuple[str, ...]

    @property
    def words(self) -> str:
        """The degradation in plain words, in pixels of the upload."""
        return self.layout.operator.words()

    def deviation(self, y: Tensor) -> float | Tensor:
        """Standard deviation of all noise of measured values."""
        if self.peak is None:
            return self.sigma
        return (noise.poisson_sigma(y, self.peak).square() + self.sigma**2).sqrt()

    def likelihood_noise(self, y: Tensor) -> Noise:
        """Noise of measured values that a likelihood assumes."""
        return self.layout.operator.likelihood_noise(self.deviation(y))

    def judged_noise(self, y: Tensor) -> float | Tensor:
        """Noise of measured values that a verdict assumes."""
        return self.layout.operator.judged_noise(self.deviation(y))


def plan(
    measurement: Measurement,
    settings: Settings,
    engine: ImageEngine,
    *,
    found: Found | None = None,
    on_inner: InnerHook | None = None,
) -> Plan:
    """Plans a restoration.

    Args:
        measurement: what was measured, of which nothing is assumed that it does not say.
        settings: how samples are drawn.
        engine: the prior.
        found: how an unknown operator was identified by an earlier plan of the same run.
        on_inner: called during a long identification; returning False cancels.

    Raises:
        InvalidSpec: operator, noise, mask, size or tiles do not fit the measurement.
        NothingToRestore: the operator is unknown, and nothing was found to undo.
        ImageTooLarge: see :attr:`Layout.tiling`.
        SamplingCancelled: ``on_inner`` returned False.
    """
    if isinstance(measurement.spec, UnknownOperator):
        found = found or measurement.spec.find(_search(measurement, settings, engine, on_inner))
        measurement = measurement.identified(found)
        sizes = [size for size in (settings.working_size, found.working_size) if size is not None]
        settings = replace(settings, working_size=min(sizes, default=None))
    else:
        found = None
    layout, notes = _layout(measurement, settings, engine.stride)
    _check(measurement, layout)
    observation = Observation.of(measurement, layout, engine.device)
    examined = measurement.examined
    return Plan(
        settings=settings,
        layout=layout,
        observation=observation,
        sigma=_sigma(measurement, layout, observation),
        peak=measurement.peak,
        found=found,
        shows_text=examined is not None and shows_text(examined),
        notes=(
            *(found.notes() if found is not None else ()),
            *notes,
            *_remarks(measurement, layout, observation),
        ),
    )


def _search(
    measurement: Measurement, settings: Settings, engine: ImageEngine, on_inner: InnerHook | None
) -> Search:
    """What an unknown operator is identified from."""
    upload, total = measurement.examined, settings.sampler.steps
    if len(measurement.values) > 1 or measurement.values.shape[1] != 3 or upload is None:
        kind = measurement.spec.type
        raise InvalidSpec(f"The operator '{kind}' is identified from one picture.")
    sigma = measurement.sigma
    return Search(
        upload=upload,
        engine=engine,
        sigma=float(sigma) if isinstance(sigma, float | int) else None,
        seed=settings.seed,
        on_inner=on_inner and (lambda info: on_inner(replace(info, total=total))),
        part=measurement.pixels,
        working_size=settings.working_size,
    )


def _layout(
    measurement: Measurement, settings: Settings, stride: int
) -> tuple[Layout, tuple[str, ...]]:
    """Sizes, with the operator as :func:`stored`; and a note about it."""
    given, upload = measurement.spec, measurement.upload
    layout = settings.layout(given, measurement.pixels, stride)
    operator, note = stored(given, upload.jpeg_quality if upload else None, layout.reduction)
    if operator == given:
        return layout, ()
    return settings.layout(operator, measurement.pixels, stride), (note,)


def stored(given: OperatorSpec, quality: int | None, reduction: float) -> tuple[OperatorSpec, str]:
    """An operator with the compression of an uploaded JPEG, or without any where a reduction
    averages pixels; and a note about it.

    Args:
        given: the operator.
        quality: that of the JPEG; None for other uploads.
        reduction: factor by which the upload is reduced.
    """
    if averaged(reduction):
        return (given.without_rounding() if given.rounding else given), AVERAGED
    return as_stored(given, quality), STORED.format(quality)


def _check(measurement: Measurement, layout: Layout) -> None:
    """Checks the measurement against what is planned.

    Raises:
        InvalidSpec: they are incompatible.
    """
    operator, size = layout.operator, measurement.size
    upload, mask_HW = measurement.upload, measurement.mask_HW
    mask = None
    if measurement.mask is not None and mask_HW is not None:
        mask = mask_HW.shape[1], mask_HW.shape[0]
    layout.check(mask, upload is not None and upload.has_alpha)
    if operator.needs_mask and mask_HW is not None:
        check_coverage("all" if bool(mask_HW.all()) else "some" if bool(mask_HW.any()) else "none")
    if not isinstance(operator, FunctionOperator):
        width, height = layout.picture
        if size not in (None, (height, width)):
            raise InvalidSpec(
                f"'size' is {size}, but the operator '{operator.type}' makes such a measurement"
                f" of a picture of {(height, width)}; leave 'size' out."
            )
    if layout.tiling is not None and len(measurement.values) > 1:
        raise InvalidSpec("Several measurements are restored as wholes; leave 'tile' out.")


def check_coverage(known: MaskCoverage, *, may_be_whole: bool = False) -> None:
    """Checks that some pixels are known and, unless ``may_be_whole``, that some are not.

    Raises:
        InvalidSpec: nothing is known, or everything is.
    """
    if known == "none":
        raise InvalidSpec(
            "The mask covers the whole picture, so no pixel is known; white (opaque) marks"
            " what to keep. Or use the task 'generate'."
        )
    if known == "all" and not may_be_whole:
        raise InvalidSpec("The mask covers nothing; black (transparent) marks what to regenerate.")


def _sigma(measurement: Measurement, layout: Layout, observation: Observation) -> float | Tensor:
    """Standard deviation of the noise: given, or estimated; with photon noise, the least."""
    given = measurement.sigma
    if not isinstance(given, str):
        return (
            given
            if isinstance(given, float | int)
            else torch.as_tensor(given).to(observation.y_BCHW)
        )
    known = layout.operator.noise() if isinstance(layout.operator, FunctionOperator) else None
    if known is not None:
        return known
    least = measurement.least_sigma(layout.reduction)
    if measurement.peak is not None:
        return least
    if layout.tiling is not None:
        return max(least, noise.estimate_sigma(*observation.sample(layout.tiling.evenly(EXAMINED))))
    y_BCHW = observation.y_BCHW
    if y_BCHW.shape[1] != 3 or min(y_BCHW.shape[2:]) < 8:
        raise InvalidSpec(
            f"The noise of a measurement of {tuple(y_BCHW.shape[1:])} cannot be estimated;"
            " set 'sigma', or give a picture as (3, height, width) in [-1, 1]."
        )
    weight = observation.bound.weight
    estimates = [float(noise.estimate_sigma(y_CHW, weight)) for y_CHW in y_BCHW]
    return max(sum(estimates) / len(estimates), least)


def _remarks(measurement: Measurement, layout: Layout, observation: Observation) -> list[str]:
    """Notes about the scale, size and transparency of the measured values."""
    upload, notes = measurement.upload, list[str]()
    registered = not isinstance(layout.operator, FunctionOperator)
    if upload is None and registered:
        notes += scale_caveats(measurement.values)
    if layout.measured != layout.upload:
        notes.append(f"The upload was reduced to {layout.measured[0]}x{layout.measured[1]} pixels.")
        if layout.working != layout.operator:
            notes[-1] += f" In these pixels the degradation is {layout.working.words()}."
    masked = layout.operator.needs_mask and measurement.mask is None
    if upload is not None and upload.is_transparent and not masked:
        notes.append("The upload's transparency was ignored; colours that it hid may show.")
    return notes
