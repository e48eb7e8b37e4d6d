"""Settings shared by samplers that decide tokens by anchored remasking."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field

from aps_core.samplers.base import SamplerSpec


class AnchoredSampler(SamplerSpec):
    """Keeps the most confident tokens of every reverse step and masks the others again."""

    guidance_scale: float = Field(
        3.5,
        ge=0,
        le=20,
        description=(
            "How strongly the prompt is followed (classifier-free guidance g of (1+g) cond -"
            " g uncond). No effect without a prompt."
        ),
    )
    remasking: Literal["posterior", "prior", "random"] = Field(
        "posterior",
        description=(
            "Which tokens are decided first: those that are most certain after the corrections"
            " ('posterior', APS-II), those that the prior is most certain of ('prior', APS-I), or"
            " any ('random', a control)."
        ),
    )
    anchor_score: Literal["confidence", "margin", "entropy"] = Field(
        "confidence",
        description=(
            "How certainty is measured: by the probability of the token's code ('confidence', the"
            " paper's), its lead over the second code ('margin'), or by how few codes are probable"
            " ('entropy', negative)."
        ),
    )
    anchor_temperature: float = Field(
        0.0,
        ge=0,
        le=10,
        description=(
            "Randomness of which tokens are decided first (Gumbel noise on their score, in standard"
            " deviations of the score). It spreads them over the picture; 0 is Algorithm 1."
        ),
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description=(
            "Randomness of the estimate that each round starts from (Gumbel noise on the prior's"
            " logits). 0 is Algorithm 1, which has none; 1 starts from a draw of the prior."
            " Default: 0 for one sample, 1 for several, so that they differ."
        ),
    )
    state_update: Literal["cosine_topk", "bernoulli"] = Field(
        "cosine_topk",
        description=(
            "How many tokens a round decides: a number that grows by a fixed plan ('cosine_topk',"
            " the cosine schedule), or each token by chance ('bernoulli', with the reverse"
            " process's probability)."
        ),
    )
    keeps_decided: ClassVar[bool] = True

    def for_samples(self, samples: int) -> Self:
        """Uses random starts only to make samples of one measurement differ."""
        if self.temperature is not None:
            return self
        return self.model_copy(update={"temperature": float(samples > 1)})
