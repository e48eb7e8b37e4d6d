"""Completes the settings of a task with what its prior recommends. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aps_core.errors import InvalidSpec
from aps_core.losses import LossSpec
from aps_core.priors import ImagePriorSpec
from aps_core.priors.base import Preset
from aps_core.samplers import SamplerSpec


def complete_sampler(
    prior: ImagePriorSpec,
    sampler: SamplerSpec,
    preset: Preset = "balanced",
    changes: Mapping[str, Any] | None = None,
) -> SamplerSpec:
    """A sampler with recommendations in the fields that were not set.

    Args:
        prior: recommends them.
        sampler: the given settings.
        preset: amount of work.
        changes: recommendations that override the prior's.

    Raises:
        InvalidSpec: the sampler does not work with the prior.
    """
    working = prior.samplers()
    if sampler.type not in working:
        raise InvalidSpec(
            f"The sampler '{sampler.type}' needs a prior that is also a denoiser; with"
            f" '{prior.type}' choose one of: {', '.join(sorted(working))}."
        )
    if sampler.model_fields_set >= type(sampler).model_fields.keys() - {"type"}:
        return sampler  # nothing to recommend: it is complete
    return sampler.with_recommended(prior.recommended_for(type(sampler), changes, preset))


def restoring_sampler(prior: ImagePriorSpec) -> SamplerSpec:
    """The sampler of a restoration that names none."""
    return SamplerSpec.named(prior.restoring_sampler).model_validate({})


def complete_loss(prior: ImagePriorSpec, loss: LossSpec) -> LossSpec:
    """A loss with recommendations in the fields that were not set."""
    return loss.with_recommended(prior.recommended_loss.get(loss.type, {}))


def caveats(prior: ImagePriorSpec, sampler: SamplerSpec, loss: LossSpec) -> list[str]:
    """Notes of the loss, and of a sampler that does not suit the prior."""
    return [*loss.caveats(), *prior.caveats(sampler)]
