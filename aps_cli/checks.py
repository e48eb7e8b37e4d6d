"""Checks of ``aps verify``. Each returns a one-line result or raises :class:`CheckFailed`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aps_core.engines.engine import Engine, ImageEngine, TextEngine
from aps_core.errors import APSError
from aps_core.evaluation.metrics import psnr
from aps_core.imaging import images, noise
from aps_core.imaging.images import Picture
from aps_core.imaging.resampling import resize
from aps_core.operators.super_resolution import SuperResolution
from aps_core.samplers.prior import PriorConfig
from aps_core.sampling import driver
from aps_core.tasks import Inputs, PictureResult, RestoreSpec, run
from aps_core.tasks.guide import GuideSpec
from aps_core.tasks.text_results import TextResult
from aps_core.verdict.fit import round_trip

ROUND_TRIP_DB = 20.0
"""Minimum PSNR of an encoded and decoded photograph in dB. Trained tokenizers reach at least 22,
random ones about 6.
"""
MISFIT = 2.0
"""Maximum misfit of a restoration, in multiples of the noise floor."""
SIGMA = 0.05
SEED = 0


class CheckFailed(APSError):
    """A check completed with an unacceptable result."""

    code = "verification_failed"
    title = "The prior failed verification"


@dataclass(frozen=True)
class Options:
    """Options of a verification."""

    prompt: str
    size: int | None
    """Side length of the pictures in pixels; None: the native size of the prior."""
    settings: dict[str, int]
    """Sampler settings to override."""
    quality: bool
    """Whether to check the quality of results; False for random weights."""
    out: Path | None
    """Folder for the resulting pictures; None: do not write them."""


Check = Callable[[Any, Options], str]


def frozen(engine: Engine, options: Options) -> str:
    """Checks that no weight requires gradients; only the logits are optimised."""
    prior: Any = engine.prior  # type: ignore[attr-defined]
    modules = [
        value
        for owner in (prior, getattr(prior, "tokenizer", None))
        for value in vars(owner).values()
        if isinstance(value, torch.nn.Module)
    ]
    trainable = [
        name
        for module in modules
        for name, weight in module.named_parameters()
        if weight.requires_grad
    ]
    if not modules or trainable:
        raise CheckFailed(
            f"these weights require gradients: {', '.join(trainable[:3])}"
            if trainable
            else "the prior contains no network"
        )
    return (
        f"{sum(weight.numel() for module in modules for weight in module.parameters()) / 1e6:.1f}"
        " million weights, none requires gradients"
    )


def tokenizer_round_trip(engine: ImageEngine, options: Options) -> str:
    """Checks that encoding and decoding preserve a photograph."""
    truth = _photo(engine, options)
    picture_BCHW = round_trip(engine.prior.tokenizer, truth.to(engine.device))
    _save(options, "round-trip.png", picture_BCHW[0])
    _finite(picture_BCHW)
    fidelity = float(psnr(picture_BCHW.cpu(), truth[None].cpu()))
    if options.quality and fidelity < ROUND_TRIP_DB:
        raise CheckFailed(
            f"{fidelity:.1f} dB, expected at least {ROUND_TRIP_DB:.0f}: the weights are damaged or"
            " belong to another network"
        )
    return f"{fidelity:.1f} dB at {truth.shape[-1]}x{truth.shape[-2]} pixels"


def text_to_image(engine: ImageEngine, options: Options) -> str:
    """Checks that the prior alone generates a picture from the prompt."""
    given = {
        name: value for name, value in options.settings.items() if name in PriorConfig.model_fields
    }
    config = PriorConfig(**given).with_recommended(engine.spec.recommended_for(PriorConfig))
    height, width = _shape(engine, options)
    generator = torch.Generator(engine.device).manual_seed(SEED)
    grid = engine.grid(height, width)
    sample = driver.sample(
        engine.prior, None, config, grid=grid, generator=generator, condition=options.prompt
    )
    _save(options, "text-to-image.png", sample.x_BCHW[0])
    _finite(sample.x_BCHW)
    used = len(sample.z_BL.unique())
    if options.quality and (used < 8 or sample.x_BCHW.std() < 0.05):
        raise CheckFailed(
            f"the picture is nearly uniform: {used} different codes, standard deviation"
            f" {float(sample.x_BCHW.std()):.3f}"
        )
    return f"{config.steps} steps, {sample.z_BL.shape[1]} tokens, {used} different codes"


def super_resolution(engine: ImageEngine, options: Options) -> str:
    """Checks that the restoration of a noisy, 4x downsampled photograph fits the measurement."""
    truth = _photo(engine, options).cpu()
    y = SuperResolution(factor=4).bind((3, *truth.shape[1:]))(truth[None])[0]
    y = noise.add_noise(y, SIGMA, torch.Generator().manual_seed(SEED)).clamp(-1, 1)
    spec = RestoreSpec(
        prior=engine.spec.type,
        operator={"type": "super_resolution", "factor": 4},
        sigma=SIGMA,
        seed=SEED,
        sampler=options.settings,
    )
    result = run(spec, Inputs(images.open_image(images.encode_png(y))), engine)
    assert isinstance(result, PictureResult)
    _save(options, "super-resolution.png", result.pictures_BCHW[0])
    _finite(result.pictures_BCHW)
    misfit, floor = result.misfit_B[0], result.noise_floor
    fidelity = float(psnr(result.pictures_BCHW.cpu(), truth[None]))
    found = (
        f"misfit {misfit:.4f} (noise {floor:.4f}), {fidelity:.1f} dB,"
        f" {result.seconds['sampling']:.1f} s of sampling"
    )
    if options.quality and misfit > MISFIT * floor:
        raise CheckFailed(f"{found}: the restoration is not consistent with the measurement")
    return found


def guided_answer(engine: TextEngine, options: Options) -> str:
    """Checks that guidance does not lower the reward of an answer, for the same seed."""
    spec = GuideSpec(
        prior=engine.spec.type,
        prompt=options.prompt,
        seed=SEED,
        compare_unguided=True,
        sampler=options.settings,
    )
    result = run(spec, Inputs(), engine)
    assert isinstance(result, TextResult)
    assert result.unguided is not None
    found = (
        f"reward {result.answer.reward:.3f} guided, {result.unguided.reward:.3f} unguided:"
        f" {result.answer.text!r}"
    )
    if options.quality and result.answer.reward < result.unguided.reward:
        raise CheckFailed(found)
    return found


CHECKS: dict[type[Engine], tuple[Check, ...]] = {
    ImageEngine: (frozen, tokenizer_round_trip, text_to_image, super_resolution),
    TextEngine: (frozen, guided_answer),
}
"""Checks for each kind of prior, in order of execution."""


def _finite(x: Tensor) -> None:
    if not torch.isfinite(x).all():
        raise CheckFailed("the picture contains NaN or infinity")


def _shape(engine: ImageEngine, options: Options) -> tuple[int, int]:
    if options.size is None:
        return engine.spec.native_size
    side = max(1, options.size // engine.stride) * engine.stride
    return side, side


def _photo(engine: ImageEngine, options: Options) -> Tensor:
    """The bundled photograph (scikit-image's cup of coffee, CC0) as (3, H, W) in [-1, 1]."""
    photo: Picture = images.open_image((files("aps_cli") / "coffee.jpg").read_bytes())
    return resize(images.to_tensor(photo), _shape(engine, options)).clamp(-1, 1).to(engine.device)


def _save(options: Options, name: str, picture_CHW: Tensor) -> None:
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / name).write_bytes(images.encode_png(picture_CHW.clamp(-1, 1).cpu()))
