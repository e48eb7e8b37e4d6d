"""Settings of anchored posterior sampling (Algorithm 1) and its presets: APS-I and APS-II of the
paper, and two controls.

Defaults are the paper's (appendix "Implementation Details") wherever it states them. A prior may
recommend other values; a small prior on a CPU needs fewer inner steps, for example. Recommendations
only fill fields that the caller left out. The result lists the settings used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from aps_core.samplers.anchored import AnchoredSampler
from aps_core.samplers.base import REVERSE_STEPS, own_defaults
from aps_core.sampling.problem import Problem, Step
from aps_core.sampling.settings import APSSettings
from aps_core.types import SamplerState

if TYPE_CHECKING:
    from torch import Tensor

NO_NOISE = (
    "Randomness of which tokens are decided first (Gumbel noise on their score, in standard"
    " deviations); this preset uses none."
)


class APSConfig(AnchoredSampler):
    """Anchored posterior sampling, the paper's Algorithm 1: corrects the estimate in every round,
    so that it agrees with the measurement, and decides the tokens that are most certain.
    """

    type: Literal["aps"] = "aps"
    steps: int = Field(15, ge=1, le=128, description=REVERSE_STEPS)
    inner_steps: int = Field(
        100,
        ge=0,
        le=5000,
        description=(
            "Corrections of the estimate in every round (Adam steps M on the logits); 0 takes the"
            " prior's expectation as it is."
        ),
    )
    learning_rate: float = Field(
        1.0,
        gt=0,
        le=20,
        description="Size of a correction (Adam's learning rate on the logits, in nats per step).",
    )
    inner: Literal["fixed", "adaptive"] = Field(
        "fixed",
        description=(
            "'fixed' makes all corrections of a round; 'adaptive' ends a round as soon as they stop"
            " helping (plateau of the loss), or the estimate agrees with the measurement up to"
            " its noise (noise floor)."
        ),
    )
    prior_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description=(
            "How strongly corrections are held back by what the prior expects (weight of the prior"
            " term of Eq. (qe)); Algorithm 1 leaves it out (0)."
        ),
    )
    entropy_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description="How strongly corrections favour one code per token (weight of the entropy).",
    )

    def init(self, problem: Problem, z_BL: Tensor) -> Any:
        """Counts the tokens to decide and allocates the inner loop's buffers."""
        from aps_core.aps import init

        return init(self, problem, z_BL)

    def step(self, problem: Problem, memory: Any, state: SamplerState) -> Step:
        """Lines 6-21 of Algorithm 1."""
        from aps_core.aps import step

        return step(self, problem, memory, state)

    @property
    def decodes(self) -> int:
        """One per Adam step; with 0 Adam steps, one decode of the prior's expectation."""
        return max(1, self.inner_steps)

    @classmethod
    def for_decodes(cls, decodes: int) -> dict[str, Any]:
        """One Adam step per decode."""
        return {"inner_steps": decodes}

    @classmethod
    def preset(cls) -> dict[str, Any]:
        """Fields that the preset class itself defines."""
        return own_defaults(cls) if cls is not APSConfig else {}

    @classmethod
    def shared(cls, config: APSSettings) -> dict[str, Any]:
        """All fields."""
        return {name: getattr(config, name) for name in APSConfig.model_fields if name != "type"}


class APSPrior(APSConfig):
    """APS-I of the paper: decides first what the prior is most certain of."""

    type: Literal["aps_i"] = "aps_i"  # type: ignore[assignment]  # a preset has its own name
    remasking: Literal["prior"] = "prior"
    anchor_temperature: float = Field(0.0, ge=0, le=10, description=NO_NOISE)


class APSPosterior(APSConfig):
    """APS-II of the paper: decides first what is most certain after the corrections."""

    type: Literal["aps_ii"] = "aps_ii"  # type: ignore[assignment]  # a preset has its own name
    remasking: Literal["posterior"] = "posterior"
    anchor_temperature: float = Field(0.0, ge=0, le=10, description=NO_NOISE)


class RandomOrder(APSConfig):
    """APS that decides tokens in random order; a control."""

    type: Literal["random_order"] = "random_order"  # type: ignore[assignment]  # its own name
    remasking: Literal["random"] = "random"


class SingleOptimisation(APSConfig):
    """APS in a single round with the corrections of all rounds; a control."""

    type: Literal["single_optimisation"] = "single_optimisation"  # type: ignore[assignment]  # its own name
    steps: int = Field(1, ge=1, le=128, description=REVERSE_STEPS)
