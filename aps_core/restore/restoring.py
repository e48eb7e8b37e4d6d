"""Main entry points of the library: load a prior, restore a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from aps_core.engines.engine import Engine, ImageEngine, TextEngine
from aps_core.errors import InvalidSpec
from aps_core.identify.diagnosis import Found, shows_text
from aps_core.imaging import images
from aps_core.imaging.notebook import figure, png_row
from aps_core.losses import LossSpec
from aps_core.objectives.perceptual import perceptual_features
from aps_core.operators import OperatorSpec
from aps_core.priors import specialised_in
from aps_core.priors.base import Preset
from aps_core.registry import Spec
from aps_core.restore.measurement import Bind, Measurement
from aps_core.samplers import SamplerSpec
from aps_core.sampling import driver
from aps_core.types import InnerHook, Prior, StepHook, Tokenizer
from aps_core.verdict.fit import Fit, judge

AnySpec = TypeVar("AnySpec", bound=Spec)


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """Posterior samples of one or several measurements."""

    pictures_BCHW: Tensor
    """All samples in [-1, 1], grouped by measurement."""
    codes_BL: Tensor
    misfit_B: list[float]
    """Data misfit of each sample in the units of the measurement."""
    noise_floor: float
    """Misfit expected of the true picture."""
    fit: Fit
    """Whether the best sample of the first measurement agrees with it."""
    found: Found | None
    """How an unknown operator was identified; None if the operator was given."""
    samples: int
    """Number of samples per measurement."""
    prior: str | None
    """Name of the registered prior; None for another."""
    sampler: SamplerSpec
    """The settings used."""
    loss: LossSpec
    notes: list[str]
    """What a caller should know of measurement, loss and sampler."""
    seed: int

    @property
    def images(self) -> list[Image.Image]:
        """Every sample as a PIL image."""
        return [images.to_pil(x_CHW) for x_CHW in self.pictures_BCHW]

    @property
    def image(self) -> Image.Image:
        """The sample of the first measurement with the lowest misfit."""
        return self.images[_best(self.misfit_B[: self.samples])]

    def _repr_png_(self) -> bytes:
        return png_row(self.pictures_BCHW)

    def _repr_html_(self) -> str:
        misfits = ", ".join(f"{misfit:.4f}" for misfit in self.misfit_B)
        return figure(
            self.pictures_BCHW,
            f"{self.prior or 'own prior'}, {self.sampler.type}, seed {self.seed}; misfit"
            f" {misfits} (noise {self.noise_floor:.4f}). Plausible samples, not evidence of what"
            " was there.",
        )


def load_prior(name: str = "embedded", device: str | None = None) -> ImageEngine | TextEngine:
    """Loads the weights of a registered prior.

    Args:
        name: a prior listed by ``aps capabilities``; ``embedded`` ships with the package.
        device: ``cpu`` or ``cuda``. Default: ``cuda`` if available, else ``cpu``.

    Raises:
        InvalidSpec: no prior has that name.
        WeightsMissing, WeightsInvalid: its files are absent or damaged.
    """
    engine = Engine.load(name, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    assert isinstance(engine, ImageEngine | TextEngine)  # there are no others
    return engine


def restore(
    measurement: Measurement,
    prior: ImageEngine | TextEngine | Prior | str | None = None,
    *,
    sampler: SamplerSpec | Mapping[str, Any] | str | None = None,
    loss: LossSpec | Mapping[str, Any] | str = "measurement",
    preset: Preset = "balanced",
    seed: int = 0,
    samples: int = 1,
    prompt: str = "",
    on_step: StepHook | None = None,
    on_inner: InnerHook | None = None,
) -> Restoration:
    """Draws posterior samples of the pictures behind a measurement.

    Args:
        measurement: one measurement, or several of the same size. Samplers may take optimisation
            steps for all at once, so that one alone may come out slightly different.
        prior: return value of :func:`load_prior`, the name of a registered prior, or any object
            that implements :class:`aps_core.types.Prior`. Default: the one specialised in what the
            first measurement shows, photographs or pages and screens; ``embedded`` with a prompt or
            a sampler, which those do not read or may not suit.
        sampler: a sampler's settings or name. Fields that are not set use the recommendation of a
            registered prior. Default: the sampler that the prior recommends, else ``aps``.
        loss: a loss's settings or name; defaults as for ``sampler``.
        preset: ``fast`` or ``best`` take fewer or more steps than the registered prior's
            recommendation, ``balanced``.
        seed: seed of every random draw; the same seed gives the same samples on the same hardware.
        samples: number of samples per measurement.
        prompt: text describing the picture; may be empty.
        on_step: called after every reverse step, with estimates of the pictures' size; returning
            False cancels the run.
        on_inner: called between inner iterations, likewise.

    Raises:
        InvalidSpec: sampler, loss, operator or prior is unknown, or they are incompatible.
        NothingToRestore: the operator is 'auto', and nothing was found to undo.
        SamplingCancelled: a hook returned False.
        SamplingDiverged: the loss is not finite.
    """
    _check(measurement, seed, samples)
    if prior is None:
        prior = "embedded" if prompt or sampler is not None else _specialised(measurement)
    if isinstance(prior, str):
        prior = load_prior(prior)
    if isinstance(prior, TextEngine):
        raise InvalidSpec(
            f"The prior '{prior.spec.type}' makes text; restoring needs one for pictures."
        )
    if not isinstance(prior, ImageEngine | Prior):
        raise InvalidSpec(f"'prior' is a prior or the name of one, not {prior!r}.")
    engine = prior if isinstance(prior, ImageEngine) else None
    network: Prior = prior.prior if isinstance(prior, ImageEngine) else prior
    tokenizer = network.tokenizer
    device = tokenizer.codebook_KD.device
    if sampler is None:
        sampler = engine.spec.restoring_sampler if engine is not None else "aps"
    chosen = _spec(SamplerSpec, sampler)  # type: ignore[type-abstract]
    compared = _spec(LossSpec, loss)  # type: ignore[type-abstract]
    if engine is not None:
        chosen = chosen.with_recommended(engine.spec.recommended_for(type(chosen), preset=preset))
        compared = compared.with_recommended(engine.spec.recommended_loss.get(compared.type, {}))
    chosen = chosen.for_samples(samples)
    notes = [
        *measurement.caveats(),
        *compared.caveats(),
        *(engine.spec.caveats(chosen) if engine is not None else []),
    ]
    compared = compared.settled()
    measurement, found = measurement.identified(engine, seed, on_inner)
    bind = measurement.bind(device)
    wide, beyond = bind, 0
    if chosen.beyond_borders:
        wide, beyond = measurement.beyond_borders(bind, tokenizer.stride)
    y_BCHW, assumed = _for_each(bind.y_BCHW, samples), bind.likelihood_noise
    if isinstance(assumed, torch.Tensor) and assumed.ndim == y_BCHW.ndim:
        assumed = _for_each(assumed, samples)
    objective = compared.bind(
        wide.operator.cropped(*wide.size),
        y_BCHW,
        assumed,
        engine.features
        if engine is not None
        else lambda kind: perceptual_features(kind, tokenizer, device),
    )
    rows, columns = (slice(beyond, beyond + side) for side in bind.size)
    height, width = wide.size

    def cut(x_BCHW: Tensor) -> Tensor:
        return x_BCHW[..., rows, columns]

    sample = driver.sample(
        network,
        objective,
        chosen,
        grid=(-(-height // tokenizer.stride), -(-width // tokenizer.stride)),
        generator=torch.Generator(device).manual_seed(int(seed)),
        batch=len(bind.y_BCHW) * samples,
        condition=prompt,
        on_step=on_step and (lambda info: on_step(info.showing(cut))),
        on_inner=on_inner and (lambda info: on_inner(info.showing(cut))),
    )
    pictures_BCHW = cut(sample.x_BCHW).clamp(-1, 1)
    misfit_B = sample.misfit_B.tolist()
    return Restoration(
        pictures_BCHW=pictures_BCHW,
        codes_BL=sample.z_BL,
        misfit_B=misfit_B,
        fit=_fit(measurement, bind, pictures_BCHW[_best(misfit_B[:samples])], tokenizer),
        found=found,
        noise_floor=objective.noise_floor,
        samples=samples,
        prior=None if engine is None else engine.spec.type,
        sampler=chosen,
        loss=compared,
        notes=notes,
        seed=seed,
    )


def _for_each(values_BCHW: Tensor, samples: int) -> Tensor:
    """Values of several measurements, repeated for each sample of theirs."""
    return values_BCHW.repeat_interleave(samples, 0) if len(values_BCHW) > 1 else values_BCHW


def _check(measurement: Measurement, seed: int, samples: int) -> None:
    """Checks what a caller may get wrong.

    Raises:
        InvalidSpec: a value is of another kind, or out of its range.
    """
    if not isinstance(measurement, Measurement):
        raise InvalidSpec(
            "'restore' takes a Measurement, such as Measurement(picture, operator='denoise'), not"
            f" {type(measurement).__name__}."
        )
    for name, value, least, end in (("seed", seed, 0, 2**32), ("samples", samples, 1, 2**16)):
        if isinstance(value, bool) or not isinstance(value, Integral) or not least <= value < end:
            raise InvalidSpec(f"'{name}' is a whole number from {least}, not {value!r}.")
    sigma = measurement.sigma
    known = isinstance(sigma, Real | Tensor | np.ndarray) and bool(
        torch.as_tensor(sigma).ge(0).all()
    )
    if sigma != "auto" and not known:
        raise InvalidSpec(f"'sigma' is 'auto', or a number or tensor from 0, not {sigma!r}.")


def _specialised(measurement: Measurement) -> str:
    """Name of the prior for what the first measurement shows."""
    upload, operator = measurement.examined(), measurement.registered()
    if upload is None:
        return "embedded"
    kinds = {each.type for each in operator.each} if isinstance(operator, OperatorSpec) else set()
    return specialised_in("documents" if shows_text(upload) else "photographs", kinds) or "embedded"


def _best(misfits: list[float]) -> int:
    """Index of the sample with the lowest misfit."""
    return misfits.index(min(misfits))


def _fit(measurement: Measurement, bind: Bind, x_CHW: Tensor, tokenizer: Tokenizer) -> Fit:
    """The verdict on one sample of the first measurement."""
    given = measurement.registered()
    words = given.words() if isinstance(given, OperatorSpec) else "the given operator"
    sigma = bind.sigma
    if isinstance(sigma, Tensor):
        sigma = sigma.expand_as(bind.y_BCHW)[0]
    return judge(bind.operator, words, x_CHW, bind.y_BCHW[0], sigma, tokenizer)


def _spec(root: type[AnySpec], given: AnySpec | Mapping[str, Any] | str) -> AnySpec:
    """A member of a family, given as settings, JSON or name."""
    if isinstance(given, root):
        return given
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, Mapping):
        raise InvalidSpec(f"{given!r} is neither a {root.__name__} nor its name nor its fields.")
    return root.from_fields(given)
