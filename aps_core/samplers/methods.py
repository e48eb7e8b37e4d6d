"""The samplers a benchmark compares, by name, with settings that give all of them the same work.

Work is the number of decoder evaluations: T reverse steps of M each, as APS's settings say. A
sampler whose own settings name another T splits the same number over so many steps. A decode of APS
and G2D2 also runs backwards, one of SGDD and SVDD does not; SVDD's takes a forward of the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from aps_core.aps import Sample, sample_aps
from aps_core.samplers.g2d2 import G2D2Config, sample_g2d2
from aps_core.samplers.prior import sample_prior
from aps_core.samplers.sgdd import SGDDConfig, sample_sgdd
from aps_core.samplers.svdd import SVDDConfig, sample_svdd
from aps_core.sampling.config import APSConfig, PriorConfig


@dataclass(frozen=True)
class Method:
    """A sampler, its settings as they follow from APS's, and what it has of its own."""

    sampler: Callable[..., Sample]
    settings: Callable[[APSConfig], BaseModel]
    own: Mapping[str, Any] = field(default_factory=dict)

    def configured(self, config: APSConfig, overrides: Mapping[str, Any]) -> BaseModel:
        """The sampler's settings at APS's budget, with ``overrides`` of its own fields; overridden
        steps share the budget.

        Raises:
            pydantic.ValidationError: an override is unknown or out of range.
        """
        changes = {**self.own, **overrides}
        if isinstance(steps := changes.get("steps"), int):
            config = _split(config, steps)
            changes["steps"] = config.steps
        settings = self.settings(config)
        return type(settings).model_validate({**settings.model_dump(), **changes})


def _split(config: APSConfig, steps: int) -> APSConfig:
    """The same number of decodes over ``steps`` reverse steps, or over fewer where there are not as
    many decodes.
    """
    decodes = config.steps * config.inner_steps
    steps = min(steps, max(decodes, config.steps))
    return config.model_copy(update={"steps": steps, "inner_steps": decodes // max(1, steps)})


def _aps(**own: Any) -> Method:
    return Method(sample_aps, lambda config: config, own)


def _prior(config: APSConfig) -> PriorConfig:
    return PriorConfig(steps=config.steps, guidance_scale=config.guidance_scale)


def _g2d2(config: APSConfig) -> G2D2Config:
    return G2D2Config(
        steps=config.steps,
        inner_steps=max(1, config.inner_steps),
        guidance_scale=config.guidance_scale,
    )


def _sgdd(config: APSConfig) -> SGDDConfig:
    return SGDDConfig(
        steps=config.steps,
        mh_steps=max(0, config.inner_steps - 1),
        guidance_scale=config.guidance_scale,
    )


def _svdd(config: APSConfig) -> SVDDConfig:
    return SVDDConfig(
        steps=config.steps,
        candidates=max(1, config.inner_steps),
        guidance_scale=config.guidance_scale,
    )


METHODS: dict[str, Method] = {
    "prior_only": Method(sample_prior, _prior),
    "aps_i": _aps(remasking="prior", anchor_temperature=0.0),
    "aps_ii": _aps(remasking="posterior", anchor_temperature=0.0),
    "random_order": _aps(remasking="random"),
    "single_optimisation": _aps(steps=1),
    "aps": _aps(),
    "g2d2": Method(sample_g2d2, _g2d2),
    "sgdd": Method(sample_sgdd, _sgdd),
    "svdd": Method(sample_svdd, _svdd),
}
"""The unguided prior (ignores the measurement), APS in the paper's two orders (by the prior's and
by the optimised posterior's confidence); two controls, a random order and one reverse step with the
inner steps of all; APS with the settings as given; then the paper's competitors.
"""
