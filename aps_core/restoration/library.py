"""Main entry points of the library: load a prior, restore a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

import torch

from aps_core.engines.engine import Engine, GivenPrior, ImageEngine, TextEngine
from aps_core.errors import InvalidSpec
from aps_core.identify.diagnosis import shows_text
from aps_core.losses import LossSpec
from aps_core.priors import specialised_in
from aps_core.priors.base import Preset
from aps_core.registry import Spec
from aps_core.restoration.drawing import Hooks
from aps_core.restoration.fallbacks import Reached, resilient
from aps_core.restoration.measurement import Measurement
from aps_core.restoration.plan import Settings, plan
from aps_core.restoration.result import Restoration
from aps_core.restoration.run import run
from aps_core.restoration.settings import (
    caveats,
    complete_loss,
    complete_sampler,
    restoring_sampler,
)
from aps_core.samplers import SamplerSpec
from aps_core.types import InnerHook, Prior, SamplerState, StepHook, StepInfo

AnySpec = TypeVar("AnySpec", bound=Spec)


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
    working_size: int | None = None,
    tile: int | None = None,
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
        working_size: longest side of the restored picture in pixels, to which the measurement is
            reduced; None uses it as it is.
        tile: longest side in pixels of the overlapping tiles in which a larger picture is restored;
            None restores it as a whole.
        on_step: called after every reverse step, or after every tile, with estimates of the
            pictures' size; returning False cancels the run.
        on_inner: called between inner iterations, likewise.

    Raises:
        InvalidSpec: sampler, loss, operator or prior is unknown, or they are incompatible.
        NothingToRestore: the operator is 'auto', and nothing was found to undo.
        InsufficientMemory: the device runs out of memory, even with all fallbacks.
        SamplingCancelled: a hook returned False.
        SamplingDiverged: the loss is not finite.
    """
    _check(measurement, seed, samples)
    if prior is None:
        prior = "embedded" if prompt or sampler is not None else _specialised(measurement)
    engine = _engine(prior)
    if sampler is None:
        sampler = restoring_sampler(engine.spec)
    chosen = complete_sampler(engine.spec, _spec(SamplerSpec, sampler), preset)  # type: ignore[type-abstract]
    compared = complete_loss(engine.spec, _spec(LossSpec, loss))  # type: ignore[type-abstract]
    notes = caveats(engine.spec, chosen, compared)
    settings = Settings(
        sampler=chosen.for_samples(samples),
        loss=compared.settled(),
        seed=int(seed),
        samples=samples,
        prompt=prompt,
        working_size=working_size,
        tile=tile,
    )
    planned = plan(measurement, settings, engine, on_inner=on_inner)

    def compute(engine: ImageEngine, resume: SamplerState | None, reached: Reached) -> Restoration:
        def report(info: StepInfo) -> bool | None:
            reached(info.state)
            return on_step(info) if on_step is not None else None

        return run(planned, engine, Hooks(report, on_inner, resume))

    made = resilient(compute, engine, samples)
    return replace(made, notes=[*made.notes, *notes, *engine.fallbacks()])


def _check(measurement: Measurement, seed: int, samples: int) -> None:
    """Checks types and ranges of what a caller gives.

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
    measurement.check_noise()


def _engine(prior: Any) -> ImageEngine:
    """The given prior on its device.

    Raises:
        InvalidSpec: it makes no pictures, or is unknown.
    """
    if isinstance(prior, str):
        prior = load_prior(prior)
    if isinstance(prior, TextEngine):
        raise InvalidSpec(
            f"The prior '{prior.spec.type}' makes text; restoring needs one for pictures."
        )
    if isinstance(prior, ImageEngine):
        return prior
    if not isinstance(prior, Prior):
        raise InvalidSpec(f"'prior' is a prior or the name of one, not {prior!r}.")
    return ImageEngine(GivenPrior(type="given"), prior, prior.tokenizer.codebook_KD.device)


def _specialised(measurement: Measurement) -> str:
    """Name of the prior for what the measurement shows."""
    picture = measurement.examined
    if picture is None:
        return "embedded"
    kinds = {each.type for each in measurement.spec.each}
    return (
        specialised_in("documents" if shows_text(picture) else "photographs", kinds) or "embedded"
    )


def _spec(root: type[AnySpec], given: AnySpec | Mapping[str, Any] | str) -> AnySpec:
    """A member of a family, given as settings, JSON or name."""
    if isinstance(given, root):
        return given
    if isinstance(given, str):
        given = {"type": given}
    if not isinstance(given, Mapping):
        raise InvalidSpec(f"{given!r} is neither a {root.__name__} nor its name nor its fields.")
    return root.from_fields(given)
