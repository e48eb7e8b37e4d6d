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
from aps_core.samplers.base import Step, own_defaults

if TYPE_CHECKING:
    from torch import Tensor

    from aps_core.sampling.driver import Problem
    from aps_core.types import SamplerState

NO_NOISE = "Gumbel noise on the anchors' score in standard deviations; this preset uses none."


class APSConfig(AnchoredSampler):
    """Anchored posterior sampling (Algorithm 1): optimises the logits and keeps the most confident
    tokens.
    """

    type: Literal["aps"] = "aps"
    steps: int = Field(15, ge=1, le=128, description="Reverse steps T.")
    inner_steps: int = Field(
        100,
        ge=0,
        le=5000,
        description=(
            "Adam steps M on the logits in every reverse step; 0 samples the prior's expectation"
            " alone."
        ),
    )
    learning_rate: float = Field(
        1.0, gt=0, le=20, description="Adam's learning rate on the logits, in nats per step."
    )
    inner: Literal["fixed", "adaptive"] = Field(
        "fixed",
        description=(
            "'fixed' runs all inner steps; 'adaptive' stops a step early on a plateau or at the"
            " noise floor."
        ),
    )
    prior_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Weight of the prior term of Eq. (qe), which Algorithm 1 leaves out (0).",
    )
    entropy_weight: float = Field(
        0.0, ge=0, le=10, description="Weight of the entropy of the optimised token distributions."
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
    def shared(cls, config: APSConfig) -> dict[str, Any]:
        """All fields."""
        return config.model_dump(exclude={"type"})


class APSPrior(APSConfig):
    """APS-I of the paper: ranks the anchors by the prior's confidence."""

    type: Literal["aps_i"] = "aps_i"  # type: ignore[assignment]  # a preset has its own name
    remasking: Literal["prior"] = "prior"
    anchor_temperature: float = Field(0.0, ge=0, le=10, description=NO_NOISE)


class APSPosterior(APSConfig):
    """APS-II of the paper: ranks the anchors by the optimised posterior's confidence."""

    type: Literal["aps_ii"] = "aps_ii"  # type: ignore[assignment]  # a preset has its own name
    remasking: Literal["posterior"] = "posterior"
    anchor_temperature: float = Field(0.0, ge=0, le=10, description=NO_NOISE)


class RandomOrder(APSConfig):
    """APS with anchors in random order; a control."""

    type: Literal["random_order"] = "random_order"  # type: ignore[assignment]  # its own name
    remasking: Literal["random"] = "random"


class SingleOptimisation(APSConfig):
    """APS in a single reverse step with the Adam steps of all steps; a control."""

    type: Literal["single_optimisation"] = "single_optimisation"  # type: ignore[assignment]  # its own name
    steps: int = Field(1, ge=1, le=128, description="Reverse steps T.")
