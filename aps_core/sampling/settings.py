"""Protocols of the settings that Algorithm 1 reads.

:class:`aps_core.samplers.aps.APSConfig` implements and documents them.
"""

from __future__ import annotations

from typing import Literal, Protocol

from aps_core.sampling.problem import Sampler


class AnchorSettings(Protocol):
    """Which tokens a reverse step decides."""

    @property
    def remasking(self) -> Literal["posterior", "prior", "random"]:
        """Distribution whose certainty counts."""
        ...

    @property
    def anchor_score(self) -> Literal["confidence", "margin", "entropy"]:
        """Measure of certainty."""
        ...

    @property
    def anchor_temperature(self) -> float:
        """Gumbel noise on the order, in standard deviations of the score."""
        ...

    @property
    def state_update(self) -> Literal["cosine_topk", "bernoulli"]:
        """Rule for the number of tokens that a step decides."""
        ...


class InnerSettings(Protocol):
    """Inner optimisation of the logits."""

    @property
    def inner_steps(self) -> int:
        """Maximum number M of Adam steps in a reverse step."""
        ...

    @property
    def learning_rate(self) -> float:
        """Adam's learning rate, in nats per step."""
        ...

    @property
    def inner(self) -> Literal["fixed", "adaptive"]:
        """Whether it always takes M steps, or may stop early."""
        ...

    @property
    def prior_weight(self) -> float:
        """Weight of the prior term of Eq. (qe)."""
        ...

    @property
    def entropy_weight(self) -> float:
        """Weight of the entropy."""
        ...


class APSSettings(Sampler, AnchorSettings, InnerSettings, Protocol):
    """All settings of Algorithm 1."""

    @property
    def guidance_scale(self) -> float:
        """Classifier-free guidance of the prior."""
        ...

    @property
    def temperature(self) -> float | None:
        """Gumbel noise on the prior's logits; None: 1 for several samples, else 0."""
        ...
