"""The library's front door: load a prior, restore a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor

from aps_core.errors import InvalidSpec
from aps_core.imaging import images
from aps_core.imaging.notebook import figure, png_row
from aps_core.losses import LossSpec
from aps_core.measurement import Measurement
from aps_core.objectives.perceptual import perceptual_features
from aps_core.registry import Spec
from aps_core.runtime.engine import Engine, ImageEngine, TextEngine
from aps_core.samplers import SamplerSpec
from aps_core.samplers.aps import APSConfig
from aps_core.sampling import driver
from aps_core.types import InnerHook, Prior, StepHook

AnySpec = TypeVar("AnySpec", bound=Spec)


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """Posterior samples of one measurement or of several."""

    pictures_BCHW: Tensor
    """All samples in [-1, 1]; those of one measurement follow each other."""
    codes_BL: Tensor
    misfit_B: list[float]
    """Data misfit of each sample, in the measurement's own units."""
    noise_floor: float
    """Misfit expected of the truth."""
    samples: int
    """Samples of each measurement."""
    sampler: SamplerSpec
    """The settings used."""
    loss: LossSpec
    seed: int

    @property
    def images(self) -> list[Image.Image]:
        """Every sample as a PIL image."""
        return [images.to_pil(x_CHW) for x_CHW in self.pictures_BCHW]

    @property
    def image(self) -> Image.Image:
        """The sample of the first measurement that agrees with it best."""
        first = self.misfit_B[: self.samples]
        return self.images[first.index(min(first))]

    def _repr_png_(self) -> bytes:
        return png_row(self.pictures_BCHW)

    def _repr_html_(self) -> str:
        misfits = ", ".join(f"{misfit:.4f}" for misfit in self.misfit_B)
        return figure(
            self.pictures_BCHW,
            f"{self.sampler.type}, seed {self.seed}; misfit {misfits} (noise"
            f" {self.noise_floor:.4f}). Plausible samples, not evidence of what was there.",
        )


def load_prior(name: str = "embedded", device: str | None = None) -> ImageEngine | TextEngine:
    """Loads a registered prior's weights.

    Args:
        name: a prior of ``aps capabilities``; ``embedded`` ships with the package.
        device: ``cpu`` or ``cuda``; left out, ``cuda`` where there is one.

    Raises:
        InvalidSpec: there is no prior of that name.
        WeightsMissing, WeightsInvalid: its files are absent or damaged.
    """
    engine = Engine.load(name, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    assert isinstance(engine, ImageEngine | TextEngine)  # there are no others
    return engine


def restore(
    measurement: Measurement,
    prior: ImageEngine | Prior | str = "embedded",
    *,
    sampler: SamplerSpec | Mapping[str, Any] | str = "aps",
    loss: LossSpec | Mapping[str, Any] | str = "measurement",
    seed: int = 0,
    samples: int = 1,
    prompt: str = "",
    on_step: StepHook | None = None,
    on_inner: InnerHook | None = None,
) -> Restoration:
    """Draws posterior samples of the pictures behind a measurement.

    Args:
        measurement: one measurement, or several of the same size.
        prior: what :func:`load_prior` returned, the name of a registered prior, or any object with
            the members of :class:`aps_core.types.Prior`.
        sampler: a sampler's settings, or its name; fields that were not set follow the
            recommendation of a registered prior.
        loss: likewise.
        seed: of every random draw; the same seed gives the same samples on the same hardware.
        samples: how many to draw of each measurement.
        prompt: text describing the picture; may stay empty.
        on_step: called after every reverse step; returning False cancels the run.
        on_inner: called between inner iterations; likewise.

    Raises:
        InvalidSpec: sampler, loss, operator or prior are unknown or do not fit.
        SamplingCancelled: a hook returned False.
        SamplingDiverged: the loss is not finite.
    """
    if isinstance(prior, str):
        loaded = load_prior(prior)
        if not isinstance(loaded, ImageEngine):
            raise InvalidSpec(f"The prior '{prior}' makes text; restoring needs one for pictures.")
        prior = loaded
    engine = prior if isinstance(prior, ImageEngine) else None
    network: Prior = prior.prior if isinstance(prior, ImageEngine) else prior
    tokenizer = network.tokenizer
    device = tokenizer.codebook_KD.device
    chosen, compared = _spec(SamplerSpec, sampler), _spec(LossSpec, loss)
    if engine is not None:
        chosen = chosen.with_recommended(engine.spec.recommended_for(type(chosen)))
        compared = compared.with_recommended(engine.spec.recommended_loss.get(compared.type, {}))
    if isinstance(chosen, APSConfig) and chosen.temperature is None:
        # several measurements are no reason to draw at random, several samples are
        chosen = chosen.model_copy(update={"temperature": float(samples > 1)})
    bind = measurement.bind(device)
    y_BCHW = bind.y_BCHW.repeat_interleave(samples, 0) if len(bind.y_BCHW) > 1 else bind.y_BCHW
    objective = compared.bind(
        bind.cropped(),
        y_BCHW,
        bind.sigma,
        engine.features
        if engine is not None
        else lambda kind: perceptual_features(kind, tokenizer, device),
    )
    height, width = bind.size
    sample = driver.sample(
        network,
        objective,
        chosen,
        grid=(-(-height // tokenizer.stride), -(-width // tokenizer.stride)),
        generator=torch.Generator(device).manual_seed(seed),
        batch=len(bind.y_BCHW) * samples,
        condition=prompt,
        on_step=on_step,
        on_inner=on_inner,
    )
    return Restoration(
        pictures_BCHW=sample.x_BCHW[..., :height, :width].clamp(-1, 1),
        codes_BL=sample.z_BL,
        misfit_B=sample.misfit_B.tolist(),
        noise_floor=objective.noise_floor,
        samples=samples,
        sampler=chosen,
        loss=compared,
        seed=seed,
    )


def _spec(root: type[AnySpec], given: AnySpec | Mapping[str, Any] | str) -> AnySpec:
    """A member of a family from its settings, its JSON or its name."""
    if isinstance(given, root):
        return given
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, Mapping):
        raise InvalidSpec(f"{given!r} is neither a {root.__name__} nor its name nor its fields.")
    return root.named(str(given.get("type"))).model_validate(given)
